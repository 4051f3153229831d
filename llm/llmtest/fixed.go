package llmtest

import (
	"time"
)

// fixedSource makes tokens by the clock.
type fixedSource struct {
	s      *Server
	prompt int
	tokens int
	reason string
	start  time.Time
	timer  *time.Timer
	seen   int
}

func newFixedSource(s *Server, j *job) *fixedSource {
	m := s.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fixedRunning++
	return &fixedSource{
		s: s, prompt: len(j.prompt), tokens: j.tokens, reason: finishedReason(j.reason),
		start: time.Now(), timer: time.NewTimer(time.Hour),
	}
}

// due is when token i exists.
func (f *fixedSource) due(i int) time.Time {
	return f.start.Add(f.s.cfg.FixedTTFT + time.Duration(i)*f.s.cfg.FixedGap)
}

// produced is how many tokens exist now.
func (f *fixedSource) produced() int {
	since := time.Since(f.start) - f.s.cfg.FixedTTFT
	if since < 0 {
		return 0
	}
	n := int(min(int64(since/f.s.cfg.FixedGap)+1, int64(f.tokens)))
	if n > f.seen {
		f.observe(n)
	}
	return n
}

func (f *fixedSource) observe(n int) {
	m := f.s.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	for ; f.seen < n; f.seen++ {
		m.fixedOutput++
		if f.seen == 0 {
			m.fixedPrompt += int64(f.prompt)
			m.ttft.observe(f.s.cfg.FixedTTFT.Seconds())
			m.queueTime.observe(0)
		} else {
			m.itl.observe(f.s.cfg.FixedGap.Seconds())
		}
	}
}

// next fires when the next token is due; it is nil for no source.
func (f *fixedSource) next() <-chan time.Time {
	if f == nil {
		return nil
	}
	f.timer.Reset(time.Until(f.due(f.seen)))
	return f.timer.C
}

func (f *fixedSource) end() {
	f.timer.Stop()
	m := f.s.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fixedRunning--
	if f.seen < f.tokens {
		m.finished["abort"]++
		return
	}
	m.finished[f.reason]++
	m.e2e.observe(f.due(f.tokens - 1).Sub(f.start).Seconds())
}
