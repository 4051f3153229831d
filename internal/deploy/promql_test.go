package deploy

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// point is a value with its labels, the name left out.
type point struct {
	labels map[string]string
	value  float64
}

// promql evaluates the part of PromQL that the panels of shares are written in, over the last values that arrived: sum by
// and without, last_over_time, * and / and `and` between vectors with the same labels, and parentheses. Prometheus itself is
// too large a dependency for a test; that it answers alike was tried by hand.
type promql struct {
	t        *testing.T
	exported map[string]*series
	tokens   []string
}

var (
	promqlToken = regexp.MustCompile(`[a-z_0-9]+(?:\{[^}]*\}\[[^]]*\])?|[*/(),]`)
	anyOf       = regexp.MustCompile(`=~"\$[a-z]+"`) // All
)

func evaluate(t *testing.T, exported map[string]*series, expr string) []point {
	t.Helper()
	p := &promql{t, exported, promqlToken.FindAllString(expr, -1)}
	require.Equal(t, strings.ReplaceAll(expr, " ", ""), strings.Join(p.tokens, ""), "the evaluator does not know all of it")
	out := p.and()
	require.Empty(t, p.tokens, "the rest of %s", expr)

	return out
}

func (p *promql) next() string {
	if len(p.tokens) == 0 {
		return ""
	}

	return p.tokens[0]
}

func (p *promql) take(expected string) string {
	token := p.next()
	require.NotEmpty(p.t, token)
	if expected != "" {
		require.Equal(p.t, expected, token)
	}
	p.tokens = p.tokens[1:]

	return token
}

// and is weaker than * and /.
func (p *promql) and() []point {
	left := p.product()
	for p.next() == "and" {
		p.take("and")
		left = matched(left, p.product(), func(a, _ float64) float64 { return a })
	}

	return left
}

func (p *promql) product() []point {
	left := p.operand()
	for {
		switch p.next() {
		case "*":
			p.take("*")
			left = matched(left, p.operand(), func(a, b float64) float64 { return a * b })
		case "/":
			p.take("/")
			left = matched(left, p.operand(), func(a, b float64) float64 { return a / b })
		default:
			return left
		}
	}
}

func (p *promql) operand() []point {
	switch token := p.take(""); token {
	case "(":
		defer p.take(")")

		return p.and()
	case "last_over_time":
		p.take("(")
		defer p.take(")")

		return p.selected(p.take(""))
	case "sum":
		keep := func(string) bool { return false }
		if mode := p.next(); mode != "(" {
			require.Contains(p.t, []string{"by", "without"}, p.take(""))
			p.take("(")
			var labels []string
			for p.next() != ")" {
				if label := p.take(""); label != "," {
					labels = append(labels, label)
				}
			}
			p.take(")")
			keep = func(label string) bool { return slices.Contains(labels, label) == (mode == "by") }
		}
		p.take("(")
		defer p.take(")")

		return summed(p.and(), keep)
	default:
		p.t.Fatalf("the evaluator does not know %q", token)

		return nil
	}
}

// selected is the last value of each series that a selector finds, with all variables at All.
func (p *promql) selected(selector string) []point {
	name, filter, found := strings.Cut(selector, "{")
	require.True(p.t, found, selector)
	filter, _, _ = strings.Cut(filter, "}")
	require.Contains(p.t, p.exported, name)
	var out []point
	for _, one := range p.exported[name].last {
		fits := true
		for condition := range strings.SplitSeq(filter, ",") {
			if anyOf.MatchString(condition) {
				continue
			}
			m := fixedLabel.FindStringSubmatch(condition)
			require.NotNil(p.t, m, condition)
			fits = fits && (one.labels[m[1]] == m[3]) == (m[2] == "")
		}
		if fits {
			out = append(out, one)
		}
	}

	return out
}

func summed(in []point, keep func(label string) bool) []point {
	groups := map[string]point{}
	for _, one := range in {
		labels := map[string]string{}
		for label, value := range one.labels {
			if keep(label) {
				labels[label] = value
			}
		}
		key := fmt.Sprint(labels)
		groups[key] = point{labels, groups[key].value + one.value}
	}

	return slices.SortedFunc(maps.Values(groups), func(a, b point) int { return cmp.Compare(fmt.Sprint(a.labels), fmt.Sprint(b.labels)) })
}

// matched joins what has the same labels on both sides, and leaves out the rest.
func matched(left, right []point, join func(a, b float64) float64) []point {
	other := map[string]float64{}
	for _, one := range right {
		other[fmt.Sprint(one.labels)] = one.value
	}
	var out []point
	for _, one := range left {
		if value, ok := other[fmt.Sprint(one.labels)]; ok {
			out = append(out, point{one.labels, join(one.value, value)})
		}
	}

	return out
}
