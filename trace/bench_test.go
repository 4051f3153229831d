package trace

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grafana/sobek"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	"go.k6.io/k6/lib/fsext"
	"gopkg.in/guregu/null.v3"

	"github.com/safeqps/xk6-safeqps/trace/format"
)

// BenchmarkDispatch replays arrivals at a constant rate into iterations that do nothing, and reports how late they
// start: the executor's own error. One run takes some seconds, so use -benchtime=1x.
func BenchmarkDispatch(b *testing.B) {
	for _, c := range []struct{ rate, vus, seconds int }{
		{200, 100, 5},
		{1000, 200, 5},
		{5000, 500, 4},
		{200, 2000, 2},
	} {
		b.Run(fmt.Sprintf("rate=%d/vus=%d", c.rate, c.vus), func(b *testing.B) {
			rows := c.rate * c.seconds
			s := &schedule{rows: make([]format.Row, rows)}
			for i := range s.rows {
				s.rows[i].Due = time.Duration(i) * time.Second / time.Duration(c.rate)
			}
			publish(b.Name(), s)
			for range b.N {
				late := make([]time.Duration, rows)
				started := atomic.Int64{}
				config := NewConfig("bench")
				config.Trace = b.Name()
				config.PreAllocatedVUs = null.IntFrom(int64(c.vus))
				r := newRig(b, config, segment{}, func(ctx context.Context, _ *goVU) error {
					now := time.Now()
					it, _ := FromContext(ctx)
					late[it.Row] = now.Sub(it.Due)
					started.Add(1)

					return nil
				})
				samples, err := r.run(b.Context())
				require.NoError(b, err)
				first := late[0]
				slices.Sort(late)
				b.ReportMetric(float64(late[rows/2].Microseconds()), "p50-µs")
				b.ReportMetric(float64(late[rows*99/100].Microseconds()), "p99-µs")
				b.ReportMetric(float64(late[rows-1].Microseconds()), "max-µs")
				b.ReportMetric(float64(first.Microseconds()), "first-µs")
				b.ReportMetric(float64(len(droppedRows(samples, ""))), "dropped")
				b.ReportMetric(float64(started.Load()), "started")
			}
		})
	}
}

// BenchmarkNext makes the request of a row for JavaScript: what stands between a row's due time and its request.
func BenchmarkNext(b *testing.B) {
	for _, length := range []int{100, 1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("tokens=%d", length), func(b *testing.B) {
			p := &project{files: fsext.NewMemMapFs(), module: New(), logs: &logtest.Hook{}}
			rt := p.vu(b)
			js(b, rt, fmt.Sprintf(`var w = trace.generate({rate: 1, count: 1000, mix: "a=1@%d/10"})`, length))
			at, ok := sobek.AssertFunction(js(b, rt, `(i) => w.at(i)`))
			require.True(b, ok)
			i := 0
			for b.Loop() {
				_, err := at(sobek.Undefined(), rt.VU.Runtime().ToValue(i%1000))
				require.NoError(b, err)
				i++
			}
		})
	}
}
