package report

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// BenchmarkMillion is the report of a million requests: how long it takes, how large it is, and how long a browser
// needs for it, with its own start.
func BenchmarkMillion(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "run")
	synthetic{
		rate: 500, capacity: 520, arrival: arrivalPoisson, warmup: 100 * time.Second, steady: 1900 * time.Second, seed: 1, status: verdict.Pass,
	}.write(b, dir)
	var page bytes.Buffer
	b.ResetTimer()
	for b.Loop() {
		page.Reset()
		require.NoError(b, HTML(&page, collect(b, dir)))
	}
	b.StopTimer()
	b.ReportMetric(float64(page.Len()), "bytes/page")
	const most = 5 << 20
	if page.Len() > most {
		b.Fatalf("the page has %d bytes, at most %d are wanted", page.Len(), most)
	}
	begin := time.Now()
	dom, console := open(b, page.String(), "1280")
	b.ReportMetric(time.Since(begin).Seconds(), "s/open")
	require.Empty(b, console)
	drawn(b, dom)
}
