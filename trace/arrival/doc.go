// Package arrival decides when requests arrive: at constant spacing, as a Poisson process, or as a Gamma
// renewal process of any burstiness, at a constant rate or at one that changes in straight lines. A schedule
// is a pure function of its Config, the seed included.
//
// # One process, one clock
//
// Every schedule is one renewal process that expects one arrival per unit of operational time, read on a
// clock that runs at the asked-for rate. With λ(t) the rate, in arrivals per second, and Λ(t) its integral, an
// arrival at operational time u happens at
//
//	t = Λ⁻¹(u)
//
// For a Poisson process this is the usual construction of a non-homogeneous one, and its converse is the
// time-rescaling theorem (E. Brown, R. Barbieri, V. Ventura, R. Kass, L. Frank, "The time-rescaling theorem and
// its application to neural spike train data analysis", Neural Computation 14 (2002)); for other renewal
// processes it is how D. Cox and V. Isham ("Point processes", 1980) modulate them. λ is linear on each stage, so
// Λ is quadratic and Λ⁻¹ a square root: Intensity has the closed forms. There is no stepping and no thinning,
// and no second, stage or bin is filled up on its own; an arrival may fall anywhere, and a gap may reach across
// any boundary. While the rate is zero, nothing arrives.
//
// # Burstiness
//
// The gaps, in operational time, are Gamma distributed with shape k and mean 1: the density is
// kᵏ·x^(k−1)·e^(−kx)/Γ(k), the coefficient of variation 1/√k. This is the burstiness of vLLM's benchmark, and
// BurstGPT (Y. Wang et al., arXiv:2401.17644) fits the same distribution to production traffic. The gaps are
// independent, and over long windows the variance of the counts is 1/k of their mean.
//
//	k = 1     Poisson: exponential gaps
//	k < 1     bursty: clusters with long silences between them
//	k > 1     smooth
//	k = +Inf  constant spacing; the first arrival is at the start of the run, as k6's constant-arrival-rate has it
//
// The process does not begin at an arrival but has always been going on: the first gap is what is left of a gap
// seen at an arbitrary instant (D. Cox, "Renewal theory", 1962). So exactly Λ(b) − Λ(a) arrivals are expected
// between a and b, also in the first second of a run.
//
// # How the mean rate is kept
//
// Left alone, n arrivals keep the mean rate with a relative standard error of 1/√(k·n): 0.7 % for 20,000 Poisson
// arrivals, 2.2 % at k = 0.1. Two runs that are to be compared would then differ by more than the effect under
// study. FreeCount gives that process, as nature does. The default is the same process under the condition that
// its first n gaps, the one in which the run begins included, have exactly the length of the run, where n is
// Count or Λ(end). The run is closed to a circle, as it were: n arrivals, n gaps, and the first and the last part
// of the run share a gap.
//
// The condition costs nothing in the law. The sum of Gamma gaps is independent of their proportions, which are
// Dirichlet distributed (E. Lukacs, "A characterization of the gamma distribution", 1955), so dividing the gaps
// by their sum, once, over the whole run, is not a distortion but exactly the conditional process. For k = 1 it
// gives n independent uniform times: the Poisson process given its count. Within windows short against the run
// everything is as in the free process; over the whole run the count has no variance. If Λ(end) is not a whole
// number, n is one of its neighbours, drawn so that its mean over seeds is Λ(end).
//
// vLLM's vllm bench serve (get_request) also divides by the sum, for the same reason, so that its n-th request
// is at n/rate. It differs in three ways. Its run begins at an arrival, which makes the start of a bursty run
// too dense, and ends on one. Its ramps are not rescaled at all. And a ramp there takes the rate from the
// request's index, not from the time, so that the rate rises exponentially in time where a line was asked for.
//
// # Same seed, same bytes
//
// The random bits are ChaCha8, keyed by SHA-256 of seed and stream name (Derive). Gonum samples the gaps. Its
// floating-point code is not bit-reproducible: compilers for arm64, s390x, ppc64le, riscv64 and amd64 v3 fuse
// multiplication and addition, others do not, and math.Exp differs by processor. Therefore each gap is rounded
// to a multiple of 2⁻²⁰ of the mean gap, all sums are sums of integers, and this package's own formulas are
// written so that they cannot be fused. The tests hold hashes of whole schedules.
//
// What is left is a chance, not a proof: a gap may lie within a rounding error of the middle between two
// multiples, or the sampler's comparison of two numbers within a rounding error of a tie, in about one of 10⁹
// gaps. Between amd64 with and without fusing 7·10⁸ gaps, and between amd64 and arm64 1.4·10⁸ gaps, at k from
// 0.05 to 100, the last bits of the unrounded ones differed again and again, the rounded ones never. The hashes
// in the tests are the same on amd64, arm64, s390x, ppc64le, riscv64, arm and 386.
//
// The grid is finer than can be dispatched: 5 ns at 200 arrivals per second. It does mean that in a very bursty
// schedule arrivals share an instant, as the law wants: at k = 0.05 two of five gaps are below a millionth of
// the mean.
package arrival
