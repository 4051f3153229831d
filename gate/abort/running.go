package abort

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/contract"
)

// running is what is kept of values of any number: enough to say exactly on which side of a limit a quantile, a mean or an
// extreme is.
type running struct {
	n, hits     int // all values, and those on the bad side of the limit
	finite      int
	sum         float64 // of the finite ones
	worst       float64 // finite one, on the side on which infinite ones are
	least, most float64
}

func (t *running) add(v float64, hit bool) {
	if t.n == 0 || v < t.least {
		t.least = v
	}
	if t.n == 0 || v > t.most {
		t.most = v
	}
	t.n++
	if hit {
		t.hits++
	}
	if math.IsInf(v, 0) {
		return
	}
	if t.finite == 0 || v > t.worst {
		t.worst = v
	}
	t.finite++
	t.sum += v
}

// mean counts an infinite value as the worst finite one, and as the limit at least: what a failed request would have taken is
// not known.
func (t *running) mean(limit float64) float64 {
	worst := limit
	if t.finite > 0 {
		worst = max(limit, t.worst)
	}

	return (t.sum + float64(t.n-t.finite)*worst) / float64(t.n)
}

func share(hits, n int) string { return fmt.Sprintf("%d of %d", hits, n) }

// quantity writes a value with its unit as reports do: to three significant digits, and all digits before the point.
func quantity(v float64, unit contract.Unit) string {
	if math.IsInf(v, 0) {
		return "unbounded (failed requests)"
	}
	switch unit {
	case contract.UnitRatio:
		return digits(100*v) + "%"
	case contract.UnitMilliseconds:
		if math.Abs(v) >= 1000 {
			return digits(v/1000) + "s"
		}

		return digits(v) + "ms"
	case contract.UnitTokensPerSecond, contract.UnitRequestsPerSecond:
		return digits(v) + " " + string(unit)
	default:
		return digits(v)
	}
}

func digits(v float64) string {
	if v == 0 {
		return "0"
	}
	decimals := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}

	return text
}
