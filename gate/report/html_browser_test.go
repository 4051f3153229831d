package report

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// browser finds a Chromium, or skips.
func browser(tb testing.TB) string {
	tb.Helper()
	if testing.Short() {
		tb.Skip("-short: the page is not opened in a browser")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	tb.Skip("no Chromium is installed: the page is not opened in a browser here")
	return ""
}

// open loads a page from disk, as a user would, and returns the document after its scripts ran, and what they said to
// the console.
func open(tb testing.TB, page, width string) (dom string, console []string) {
	tb.Helper()
	path := browser(tb)
	dir := tb.TempDir()
	file := filepath.Join(dir, "report.html")
	require.NoError(tb, os.WriteFile(file, []byte(page), 0o600))
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	var out, log bytes.Buffer
	cmd := exec.CommandContext(ctx, path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--enable-logging=stderr", "--user-data-dir="+filepath.Join(dir, "profile"), "--window-size="+width+",900",
		"--virtual-time-budget=5000", "--dump-dom", "file://"+file)
	cmd.Stdout, cmd.Stderr = &out, &log
	require.NoError(tb, cmd.Run(), "%s", &log)
	for line := range strings.SplitSeq(log.String(), "\n") {
		if strings.Contains(line, "CONSOLE") {
			console = append(console, line)
		}
	}
	return out.String(), console
}

// drawn counts the charts that were drawn, as the script says and as the document shows.
func drawn(tb testing.TB, dom string) int {
	tb.Helper()
	ready := regexp.MustCompile(`<html[^>]* data-ready="(\d+)"`).FindStringSubmatch(dom)
	require.NotNil(tb, ready, "the script did not come to its end")
	n, err := strconv.Atoi(ready[1])
	require.NoError(tb, err)
	require.Equal(tb, n, strings.Count(dom, `data-drawn="true"`))
	require.Equal(tb, n, strings.Count(dom, "<canvas"))
	return n
}

func TestPageInABrowser(t *testing.T) {
	browser(t)
	dir := t.TempDir()
	const perRun, rates = 13, 7

	short().write(t, filepath.Join(dir, "one"))
	dom, console := open(t, render(t, collect(t, filepath.Join(dir, "one"))), "1280")
	require.Empty(t, console)
	require.Equal(t, perRun, drawn(t, dom))
	require.NotContains(t, dom, `<div class="absent"`)
	require.Equal(t, perRun, strings.Count(dom, "<summary>Data table</summary>"), "each chart has its table")
	require.Contains(t, dom, `aria-label="TTFT, queue and KV cache: TTFT p99 from `)

	bare := short()
	bare.bare, bare.status = true, ""
	bare.write(t, filepath.Join(dir, "bare"))
	dom, console = open(t, render(t, collect(t, filepath.Join(dir, "bare"))), "360")
	require.Empty(t, console)
	require.Equal(t, 7, strings.Count(dom, `<div class="absent"`), "charts without data say so")
	require.Contains(t, dom, "queue depth, KV cache: not measured")
	drawn(t, dom)

	in := collect(t, filepath.Join(dir, "one"), filepath.Join(dir, "bare"))
	safe := 19.0
	in.Capacity = []Capacity{{Workload: "chat", SafeQPS: &safe}}
	dom, console = open(t, render(t, in), "1280")
	require.Empty(t, console)
	require.Equal(t, rates+perRun, drawn(t, dom), "the rates, and the first run; the other is drawn when it is picked")
	require.Regexp(t, `<article class="run" id="run-2"[^>]* hidden=""`, dom)

	other := 17.4
	in.Capacity = append(in.Capacity, Capacity{Workload: "rag", SafeQPS: &other})
	in.Runs[0].Workload, in.Runs[1].Workload = "rag", "chat"
	dom, console = open(t, render(t, in), "1280")
	require.Empty(t, console)
	require.Equal(t, rates+perRun, drawn(t, dom))
	for _, name := range []string{"A Safe QPS of chat, (the script's): 19/s", "B Safe QPS of rag, (the script's): 17.4/s"} {
		require.Equal(t, rates, strings.Count(dom, name), "%s, in each chart", name)
	}
}

// TestPageByKeyboard drives a page by a script of its own, which the page's policy would not let run.
func TestPageByKeyboard(t *testing.T) {
	browser(t)
	dir := filepath.Join(t.TempDir(), "run")
	s := short()
	s.rate, s.bare = 0.5, true // most seconds have no arrival
	s.write(t, dir)
	page := regexp.MustCompile(`<meta http-equiv[^>]*>`).ReplaceAllString(render(t, collect(t, dir)), "")
	page = strings.Replace(page, "</body>", `<script>
		const plot = document.querySelectorAll('.plot')[0], figure = plot.closest('figure');
		const press = (key) => plot.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
		const spoken = [];
		for (const key of ['Home', 'ArrowRight', 'End', 'ArrowRight', 'ArrowLeft']) {
			press(key);
			spoken.push(figure.querySelector('.sr').textContent.split(':').slice(0, 2).join(':'));
		}
		document.body.dataset.spoken = spoken.join(' ');
		const details = figure.querySelector('details');
		details.addEventListener('toggle', () => { document.body.dataset.rows = details.querySelectorAll('tbody tr').length + ' ' + [...details.querySelectorAll('td')].some((c) => c.textContent === 'not measured'); });
		details.open = true;
		document.getElementById('theme').click();
		document.getElementById('theme').click();
	</script></body>`, 1)
	dom, console := open(t, page, "360")
	require.Empty(t, console)
	require.Contains(t, dom, `data-spoken="0:00 0:01 0:29 0:29 0:28"`)
	require.Contains(t, dom, `data-rows="30 true"`, "a second without an arrival says so")
	require.Contains(t, dom, `data-theme="dark"`)
	require.Contains(t, dom, "Theme: dark")
	drawn(t, dom)
}

// The envelope and what it holds for stand right below the verdict: nothing of them is to be found sideways.
func TestTheEnvelopeNeedsNoSidewaysScrolling(t *testing.T) {
	browser(t)
	dir := t.TempDir()
	short().write(t, filepath.Join(dir, "one"))
	short().write(t, filepath.Join(dir, "two"))
	in := collect(t, dir)
	in.Capacity = []Capacity{
		{
			Workload: "chat", Arrival: "poisson", SafeQPS: number(29.7), CompletedRate: number(29.5), RequestsPerArrival: number(3.14),
			OutputTokensPerSecond: number(1510), PromptTokensPerSecond: number(7140), Knee: number(33.4), Margin: number(0.11),
			LimitingCriterion: "client_headroom.schedule_error", Note: strings.Repeat("a note as long as a sentence is; ", 12),
			Created: syntheticStart, Configuration: map[string]string{"engine": "simulated", "max_num_seqs": "16", "change": "none: how much does it carry?"},
		},
		{Workload: "long-context", Arrival: "bursty"},
	}
	page := regexp.MustCompile(`<meta http-equiv[^>]*>`).ReplaceAllString(render(t, in), "")
	for name, width := range map[string]int{"a phone": 390, "a tablet": 900, "a desk": 1280} {
		t.Run(name, func(t *testing.T) {
			// A window has a least width: within it the content is as narrow as on a phone.
			sized := strings.Replace(page, "</body>", `<script>
				document.querySelector('main').style.maxWidth = '`+strconv.Itoa(width)+`px';
				const region = document.querySelector('.scroll[aria-labelledby=capacity]'), cells = [...region.querySelectorAll('tbody > tr > *')];
				const beyond = cells.filter((c) => c.getBoundingClientRect().right > region.getBoundingClientRect().right + 1);
				document.body.dataset.beyond = [region.scrollWidth - region.clientWidth, beyond.length, cells.length].join(' ');
				document.body.dataset.tallest = Math.max(...cells.map((c) => c.getBoundingClientRect().height)) < 330;
			</script></body>`, 1)
			dom, console := open(t, sized, strconv.Itoa(width))
			require.Empty(t, console)
			require.Contains(t, dom, `data-beyond="0 0 21"`)
			require.Contains(t, dom, `data-tallest="true"`, "no cell of one word a line")
		})
	}
}
