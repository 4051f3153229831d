package clock_test

import (
	"math"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/safeqps/xk6-safeqps/gate/clock"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds float64) time.Time { return epoch.Add(time.Duration(seconds * float64(time.Second))) }

func header(second int) string { return at(float64(second)).Format(http.TimeFormat) }

func TestATurnIsBracketedBySendAndHeader(t *testing.T) {
	t.Parallel()
	w := clock.NewWatch()
	w.Answered(header(10), at(10.90), at(10.95))
	w.Answered(header(11), at(11.004), at(11.020))
	require.Equal(t, []results.ClockReading{{Date: at(11), Lower: -100, Upper: 20}}, w.Take())
	require.Empty(t, w.Take(), "nothing new")

	// A request whose answer is told late brackets its turn more closely.
	w.Answered(header(10), at(10.9871234), at(11.003))
	require.Equal(t, []results.ClockReading{{Date: at(11), Lower: -12.877, Upper: 20}}, w.Take(), "rounded outwards")
	w.Answered(header(10), at(10.5), at(10.6))
	w.Answered(header(11), at(11.5), at(11.6))
	require.Empty(t, w.Take(), "no closer")
}

func TestASecondWithoutAnswersWidensTheBracket(t *testing.T) {
	t.Parallel()
	w := clock.NewWatch()
	w.Answered(header(10), at(10.9), at(10.95))
	w.Answered(header(13), at(13.1), at(13.2))
	require.Equal(t, []results.ClockReading{{Date: at(13), Lower: -2100, Upper: 200}}, w.Take())
}

func TestWhatIsNoDateSaysNothing(t *testing.T) {
	t.Parallel()
	w := clock.NewWatch()
	for _, date := range []string{"", "yesterday", "12"} {
		w.Answered(date, at(1), at(2))
	}
	w.Answered(header(10), time.Time{}, at(2))
	w.Answered(header(11), at(2), time.Time{})
	require.Empty(t, w.Take())
}

// Answers are told when they end, which may be long after their headers came.
func TestALongAnswerStillBracketsItsTurn(t *testing.T) {
	t.Parallel()
	w := clock.NewWatch()
	w.Answered(header(10), at(10.9), at(10.95))
	w.Answered(header(11), at(11.1), at(11.2))
	require.Len(t, w.Take(), 1)
	w.Answered(header(800), at(800), at(800.1))
	w.Answered(header(10), at(10.99), at(11.01))
	require.Equal(t, []results.ClockReading{{Date: at(11), Lower: -10, Upper: 200}}, w.Take())

	w.Answered(header(2000), at(2000), at(2000.1))
	w.Answered(header(10), at(10.999), at(11.01))
	w.Answered(header(11), at(11.02), at(11.03))
	require.Empty(t, w.Take(), "after a quarter of an hour it is forgotten")
}

func reading(second int, lower, upper float64) results.ClockReading {
	return results.ClockReading{Date: at(float64(second)), Lower: lower, Upper: upper}
}

func TestOffset(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		of, reference []results.ClockReading
		want          results.ClockOffset
		certain       bool
		err           error
	}{
		"one turn": {
			of: []results.ClockReading{reading(1, 2290, 2310)}, reference: []results.ClockReading{reading(1, -5, 10)},
			want: results.ClockOffset{Lower: 2280, Upper: 2315, Turns: 1}, certain: true,
		},
		"two turns bound it more closely": {
			of:        []results.ClockReading{reading(1, -40, 10), reading(2, 0, 30)},
			reference: []results.ClockReading{reading(1, -5, 20), reading(2, 0, 5)},
			want:      results.ClockOffset{Lower: -5, Upper: 15, Turns: 2},
		},
		"a turn that is told twice": {
			of:        []results.ClockReading{reading(1, -400, 100), reading(1, -20, 50)},
			reference: []results.ClockReading{reading(1, 30, 40)},
			want:      results.ClockOffset{Lower: -60, Upper: 20, Turns: 1},
		},
		"behind": {
			of: []results.ClockReading{reading(1, -90, -80)}, reference: []results.ClockReading{reading(1, 0, 10)},
			want: results.ClockOffset{Lower: -100, Upper: -80, Turns: 1}, certain: true,
		},
		"nothing seen":   {reference: []results.ClockReading{reading(1, 0, 1)}, err: clock.ErrNoReadings},
		"nothing common": {of: []results.ClockReading{reading(2, 0, 1)}, reference: []results.ClockReading{reading(1, 0, 1)}, err: clock.ErrNoCommon},
		"a turn before itself": {
			of: []results.ClockReading{reading(1, 5, 1)}, reference: []results.ClockReading{reading(1, 0, 1)}, err: clock.ErrContradictory,
		},
		"a turn before itself, by less than the other can tell": {
			of: []results.ClockReading{reading(1, 5, 1)}, reference: []results.ClockReading{reading(1, 0, 10)}, err: clock.ErrContradictory,
		},
		"the reference contradicts itself": {
			of: []results.ClockReading{reading(1, 0, 10)}, reference: []results.ClockReading{reading(1, 5, 1)}, err: clock.ErrContradictory,
		},
		"turns that contradict each other": {
			of:        []results.ClockReading{reading(1, 0, 1), reading(2, 500, 501)},
			reference: []results.ClockReading{reading(1, 0, 1), reading(2, 0, 1)}, err: clock.ErrContradictory,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := clock.Offset(c.of, c.reference)
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.want, got)
			require.Equal(t, c.certain, got.Certain())
		})
	}
}

// service answers requests of hosts whose clocks differ from the true time. Its own clock may be wrong too, and its
// header old: it is renewed every period, which need not be a second.
type service struct {
	ahead, period float64
}

func (s service) date(truth float64) string {
	renewed := math.Floor(truth/s.period) * s.period

	return at(renewed + s.ahead).Truncate(time.Second).Format(http.TimeFormat)
}

// host is asked for its readings after a run of so many seconds.
func (s service) host(rng *rand.Rand, ahead, drift, rate, seconds float64) []results.ClockReading {
	w := clock.NewWatch()
	var all []results.ClockReading
	for now := 0.0; now < seconds; now += rng.ExpFloat64() / rate {
		there, back := 0.002*rng.ExpFloat64(), 0.003*rng.ExpFloat64()
		shown := func(truth float64) time.Time { return at(truth + ahead + drift*truth) }
		w.Answered(s.date(now+there), shown(now), shown(now+there+back))
		if rng.IntN(10) == 0 {
			all = append(all, w.Take()...)
		}
	}

	return append(all, w.Take()...)
}

func TestTheOffsetIsAlwaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		s := service{
			ahead:  rapid.Float64Range(-30, 30).Draw(rt, "service ahead"),
			period: rapid.SampledFrom([]float64{1e-9, 0.1, 1, 1.005}).Draw(rt, "renewed every"),
		}
		a, b := rapid.Float64Range(-5, 5).Draw(rt, "a"), rapid.Float64Range(-5, 5).Draw(rt, "b")
		drift := rapid.SampledFrom([]float64{0, 1e-6, 50e-6}).Draw(rt, "drift")
		const seconds, rate = 150, 20
		first, second := s.host(rng, a, 0, rate, seconds), s.host(rng, b, drift, rate, seconds)
		got, err := clock.Offset(second, first)
		if err != nil {
			rt.Fatal(err)
		}
		for _, at := range []float64{1, seconds - 1} {
			want := 1000 * (b - a + drift*at)
			// At a window's edge the bound is of a moment within it.
			if slack := 1000 * drift * 3; got.Lower-slack > want || got.Upper+slack < want {
				rt.Fatalf("offset %v ms, bounds %+v", want, got)
			}
		}
		if width := got.Upper - got.Lower; width > 60 {
			rt.Fatalf("bounds %+v are %v ms apart", got, width)
		}
	})
}

func TestSeveralClocksBehindOneAddressAreFound(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 1))
	first, second := service{period: 1e-9}, service{period: 1e-9, ahead: 0.4}
	w := clock.NewWatch()
	for now := 0.0; now < 30; now += 0.05 {
		s := first
		if rng.IntN(2) == 0 {
			s = second
		}
		w.Answered(s.date(now+0.001), at(now), at(now+0.002))
	}
	_, err := clock.Offset(w.Take(), []results.ClockReading{reading(1, 0, 1)})
	require.ErrorIs(t, err, clock.ErrContradictory)
}
