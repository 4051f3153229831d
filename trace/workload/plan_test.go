package workload

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/safeqps/xk6-safeqps/llm/llmtest"
	"github.com/safeqps/xk6-safeqps/llm/tokens"
	"github.com/safeqps/xk6-safeqps/llm/wire"
	"github.com/safeqps/xk6-safeqps/trace/arrival"
	"github.com/safeqps/xk6-safeqps/trace/format"
)

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func plan(t testing.TB, trace *format.Trace, o Options) *Plan {
	t.Helper()
	p, err := NewPlan(trace, o)
	require.NoError(t, err)
	return p
}

func at(t testing.TB, p *Plan, row int) Request {
	t.Helper()
	r, err := p.At(row)
	require.NoError(t, err)
	return r
}

func lengths(inputs ...int32) *format.Trace {
	t := &format.Trace{Name: "t"}
	for i, n := range inputs {
		t.Rows = append(t.Rows, format.Row{Due: time.Duration(i) * time.Second, InputTokens: n, OutputTokens: 10})
	}
	return t
}

func count(t testing.TB, encoding, text string) int {
	t.Helper()
	tokenizer, err := tokens.New(encoding)
	require.NoError(t, err)
	return tokenizer.Count(text)
}

// blockTrace is a small trace of hash ids: rows 0 and 1 share two blocks, rows 1 and 2 are equal, row 3 shares
// nothing, row 4 is the beginning of row 1, and row 5 has no ids.
func blockTrace() *format.Trace {
	return &format.Trace{Name: "t", BlockSize: 64, Rows: []format.Row{
		{InputTokens: 3*64 - 1, OutputTokens: 5, HashIDs: []uint64{1, 2, 3}},
		{InputTokens: 3 * 64, OutputTokens: 5, HashIDs: []uint64{1, 2, 4}},
		{InputTokens: 3 * 64, OutputTokens: 5, HashIDs: []uint64{1, 2, 4}},
		{InputTokens: 70, OutputTokens: 5, HashIDs: []uint64{8, 9}},
		{InputTokens: 100, OutputTokens: 5, HashIDs: []uint64{1, 2}},
		{InputTokens: 100, OutputTokens: 5},
	}}
}

func TestBlocks(t *testing.T) {
	p := plan(t, blockTrace(), Options{Seed: 3})
	words := make([][]string, 0, 6)
	for row := range 6 {
		r := at(t, p, row)
		for _, encoding := range tokens.Names() {
			require.Equal(t, r.InputTokens, count(t, encoding, r.Prompt), "row %d in %s", row, encoding)
		}
		require.Equal(t, int(blockTrace().Rows[row].InputTokens), r.InputTokens)
		words = append(words, strings.Fields(r.Prompt))
	}
	require.Equal(t, words[0][:128], words[1][:128], "two blocks are shared")
	require.NotEqual(t, words[0][128], words[1][128], "and no more")
	require.Equal(t, words[1], words[2], "equal ids, equal prompts")
	require.NotEqual(t, words[0][0], words[3][0])
	require.Equal(t, words[1][:100], words[4], "a partial block is the beginning of a full one")
	require.NotEqual(t, words[1][:7], words[5][:7])
}

func TestIgnoreHashIDs(t *testing.T) {
	p := plan(t, blockTrace(), Options{Seed: 3, IgnoreHashIDs: true})
	first := map[string]bool{}
	for row := range 6 {
		r := at(t, p, row)
		require.Len(t, strings.Fields(r.Prompt), r.InputTokens)
		first[strings.Fields(r.Prompt)[0]] = true
	}
	require.Len(t, first, 6)
}

// The bytes are promised, as in llm/tokens.
func TestPromptsGolden(t *testing.T) {
	p := plan(t, blockTrace(), Options{Seed: 42})
	require.Equal(t, goldenBlockPrompt, digest(at(t, p, 1).Prompt))
	p = plan(t, lengths(2000, 2000), Options{Seed: 42})
	require.Equal(t, goldenPrompts, []string{digest(at(t, p, 0).Prompt), digest(at(t, p, 1).Prompt)})
	r := tokens.IDRange{Low: 1000, High: 30_000}
	p = plan(t, blockTrace(), Options{Seed: 42, IDs: &r})
	require.Equal(t, goldenIDPrompt, digest(fmt.Sprint(at(t, p, 1).PromptIDs)))
}

func TestTokenIDs(t *testing.T) {
	r := tokens.IDRange{Low: 1000, High: 30_000}
	p := plan(t, blockTrace(), Options{Seed: 3, IDs: &r, Calibration: tokens.Calibration{PerWord: 1.4, Overhead: 30}})
	ids := make([][]int, 0, 6)
	for row := range 6 {
		request := at(t, p, row)
		require.Empty(t, request.Prompt)
		require.Len(t, request.PromptIDs, request.InputTokens, "exact by construction, whatever the calibration")
		for _, id := range request.PromptIDs {
			require.True(t, id >= 1000 && id <= 30_000)
		}
		ids = append(ids, request.PromptIDs)
	}
	require.Equal(t, ids[0][:128], ids[1][:128])
	require.NotEqual(t, ids[0][128], ids[1][128])
	require.Equal(t, ids[1][:100], ids[4])
}

func TestUniquePromptsShareNoBeginning(t *testing.T) {
	const rows = 3000
	inputs := make([]int32, rows)
	for i := range inputs {
		inputs[i] = 16
	}
	p := plan(t, lengths(inputs...), Options{Seed: 8})
	two, first := map[string]int{}, map[string]int{}
	for row := range rows {
		words := strings.Fields(at(t, p, row).Prompt)
		require.Len(t, words, 16)
		two[words[0]+" "+words[1]]++
		first[words[0]]++
	}
	require.Len(t, two, rows, "no two rows share two words")
	require.LessOrEqual(t, len(first), 1024)
	for word, n := range first {
		require.LessOrEqual(t, n, 3, word)
	}
	// Another seed, other prompts.
	require.NotEqual(t, at(t, p, 5).Prompt, at(t, plan(t, lengths(inputs...), Options{Seed: 9}), 5).Prompt)
}

func TestCalibratedLengths(t *testing.T) {
	for _, c := range []tokens.Calibration{{PerWord: 1, Overhead: 37}, {PerWord: 1.3, Overhead: 12}, {PerWord: 2, Overhead: 0}} {
		trace := blockTrace()
		trace.Rows = append(trace.Rows, lengths(1000, 20_000).Rows...)
		p := plan(t, trace, Options{Calibration: c})
		prompts := make([]string, 0, len(trace.Rows))
		for row := range trace.Rows {
			r := at(t, p, row)
			served := c.PerWord*float64(len(strings.Fields(r.Prompt))) + c.Overhead
			require.InDelta(t, r.InputTokens, served, c.PerWord/2+1e-9, "row %d under %+v", row, c)
			prompts = append(prompts, r.Prompt)
		}
		require.Equal(t, prompts[1], prompts[2])
		require.True(t, strings.HasPrefix(prompts[1], prompts[4]), "sharing survives the template's overhead")
		shared := strings.Fields(prompts[0])
		other := strings.Fields(prompts[1])
		require.Equal(t, shared[:c.Boundary(128)], other[:c.Boundary(128)])
		if len(shared) > c.Boundary(128) {
			require.NotEqual(t, shared[c.Boundary(128)], other[c.Boundary(128)], "and no more than two blocks are shared")
		}
	}
}

func TestTooShort(t *testing.T) {
	p := plan(t, lengths(5, 38, 37, 100), Options{Calibration: tokens.Calibration{PerWord: 1, Overhead: 37}})
	require.Equal(t, 2, p.TooShort())
	require.Len(t, strings.Fields(at(t, p, 0).Prompt), 1)
}

func TestRequestFields(t *testing.T) {
	trace := &format.Trace{Name: "t", Rows: []format.Row{
		{Due: 1500 * time.Millisecond, InputTokens: 9, OutputTokens: 77, Class: "long", Extra: &format.Extra{Session: "s", Turn: 2, Delay: time.Second}},
		{InputTokens: 3, OutputTokens: 0},
		{InputTokens: 3, OutputTokens: format.Unknown},
		{InputTokens: format.Unknown, OutputTokens: 4, Extra: &format.Extra{Text: "say hi"}},
		{InputTokens: 12, OutputTokens: 4, Extra: &format.Extra{Messages: json.RawMessage(`[{"role":"system","content":"x"}]`)}},
		{InputTokens: format.Unknown, OutputTokens: 4, Extra: &format.Extra{Payload: json.RawMessage(`{"n":2}`)}},
	}}
	p := plan(t, trace, Options{IgnoreEOS: true})
	require.Equal(t, 6, p.Len())
	r := at(t, p, 0)
	prompt := r.Prompt
	require.Len(t, strings.Fields(prompt), 9)
	require.Equal(t, Request{
		Row: 0, Class: "long", Due: 1500 * time.Millisecond, InputTokens: 9, MaxTokens: 77, Prompt: prompt,
		Session: "s", Turn: 2, Delay: time.Second, Stream: true, IgnoreEOS: true,
	}, r)
	require.Equal(t, 1, at(t, p, 1).MaxTokens)
	require.False(t, at(t, p, 1).IgnoreEOS)
	require.Equal(t, 0, at(t, p, 2).MaxTokens)
	require.Equal(t, "say hi", at(t, p, 3).Prompt)
	require.Equal(t, 0, at(t, p, 3).InputTokens)
	require.JSONEq(t, `[{"role":"system","content":"x"}]`, string(at(t, p, 4).Messages))
	require.Equal(t, 12, at(t, p, 4).InputTokens)
	require.JSONEq(t, `{"n":2}`, string(at(t, p, 5).Payload))

	_, err := p.At(6)
	require.EqualError(t, err, "workload: row 6: the trace t has rows 0 to 5")
	_, err = p.At(-1)
	require.Error(t, err)
}

func TestBody(t *testing.T) {
	text := Request{Row: 3, Prompt: "hi", MaxTokens: 7, Stream: true, IgnoreEOS: true}
	ids := Request{Row: 3, PromptIDs: []int{5, 6}}
	chat := Request{Row: 3, Messages: json.RawMessage(`[{"role":"user","content":"a"}]`), MaxTokens: 2}
	for _, c := range []struct {
		r    Request
		api  wire.API
		want string
	}{
		{text, wire.Chat, `{"messages":[{"role":"user","content":"hi"}],"max_tokens":7,"stream":true,"ignore_eos":true}`},
		{text, wire.Messages, `{"messages":[{"role":"user","content":"hi"}],"max_tokens":7,"stream":true,"ignore_eos":true}`},
		{text, wire.Completions, `{"prompt":"hi","max_tokens":7,"stream":true,"ignore_eos":true}`},
		{text, wire.Responses, `{"input":[{"role":"user","content":"hi"}],"max_output_tokens":7,"stream":true,"ignore_eos":true}`},
		{ids, wire.Completions, `{"prompt":[5,6],"stream":false}`},
		{chat, wire.Chat, `{"messages":[{"role":"user","content":"a"}],"max_tokens":2,"stream":false}`},
		{Request{Payload: json.RawMessage(`{"model":"m","n":2}`)}, wire.Chat, `{"model":"m","n":2}`},
	} {
		body, err := c.r.Body(c.api)
		require.NoError(t, err)
		got, err := json.Marshal(body)
		require.NoError(t, err)
		require.JSONEq(t, c.want, string(got))
		if c.r.Payload == nil {
			_, _, err = wire.BuildRequest(c.api, body, wire.RequestOptions{Model: "m"})
			require.NoError(t, err)
		}
	}
	for _, c := range []struct {
		r    Request
		api  wire.API
		want string
	}{
		{ids, wire.Chat, "row 3: token ids can be sent to the completions API only"},
		{chat, wire.Completions, "row 3: a chat history cannot be sent to the completions API"},
		{text, "x", `unknown API "x"`},
		{Request{Row: 3, Messages: json.RawMessage(`{}`)}, wire.Chat, "row 3: messages: expected a JSON array"},
		{Request{Row: 3, Payload: json.RawMessage(`[]`)}, wire.Chat, "row 3: payload: expected a JSON object"},
	} {
		_, err := c.r.Body(c.api)
		require.ErrorContains(t, err, c.want)
	}
}

func TestStreamShare(t *testing.T) {
	inputs := make([]int32, 20_000)
	for i := range inputs {
		inputs[i] = 1
	}
	p := plan(t, lengths(inputs...), Options{Seed: 6, UnstreamedShare: 0.25})
	whole := 0
	for row := range inputs {
		if !at(t, p, row).Stream {
			whole++
		}
	}
	require.InDelta(t, 5000, whole, 3.9*61.3, "a binomial deviation of 3.9σ, α = 1e-4")
	require.False(t, at(t, plan(t, lengths(1), Options{UnstreamedShare: 1}), 0).Stream)
}

func TestLoop(t *testing.T) {
	trace := blockTrace()
	p := plan(t, trace, Options{Seed: 1, Loop: &Loop{Period: time.Minute}})
	same := plan(t, trace, Options{Seed: 1, Loop: &Loop{Period: time.Minute, SamePrefixes: true}})
	for row := range 6 {
		first, later := at(t, p, row), at(t, p, row+12)
		require.Equal(t, row+12, later.Row)
		require.Equal(t, 2*time.Minute, later.Due)
		require.Equal(t, first.InputTokens, later.InputTokens)
		require.NotEqual(t, strings.Fields(first.Prompt)[:3], strings.Fields(later.Prompt)[:3])
		if len(trace.Rows[row].HashIDs) > 0 {
			require.Equal(t, first.Prompt, at(t, same, row+12).Prompt)
		} else {
			require.NotEqual(t, first.Prompt, at(t, same, row+12).Prompt)
		}
	}
	require.Equal(t, at(t, p, 13).Prompt, at(t, p, 14).Prompt, "sharing within a pass stays")
}

func TestNewPlanErrors(t *testing.T) {
	ids := tokens.IDRange{Low: 0, High: 5}
	good := tokens.IDRange{Low: 0, High: 5000}
	pool, err := NewPool("p.txt", []byte("a\n"))
	require.NoError(t, err)
	chats, err := NewPool("c.jsonl", []byte(`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`))
	require.NoError(t, err)
	tokenizer, err := tokens.New(tokens.CL100K)
	require.NoError(t, err)
	row := func(r format.Row, block int) *format.Trace {
		return &format.Trace{Name: "f.jsonl", BlockSize: block, Rows: []format.Row{{InputTokens: 1}, r}}
	}
	for _, c := range []struct {
		name  string
		trace *format.Trace
		o     Options
		want  string
	}{
		{"empty", &format.Trace{Name: "f"}, Options{}, "trace f has no rows"},
		{"unknown", row(format.Row{InputTokens: format.Unknown}, 0), Options{}, "trace f.jsonl: row 1: expected an input length, or a literal prompt, got neither"},
		{"zero", row(format.Row{InputTokens: 0}, 0), Options{}, "row 1: expected a prompt of at least one token, got an input length of 0"},
		{"too many ids", row(format.Row{InputTokens: 1024, HashIDs: []uint64{1, 2, 3}}, 512), Options{}, "row 1: an input length of 1024 tokens in blocks of 512 needs 2 hash ids, got 3"},
		{"too few ids", row(format.Row{InputTokens: 1025, HashIDs: []uint64{1, 2}}, 512), Options{}, "needs 3 hash ids, got 2"},
		{"block size", row(format.Row{InputTokens: 1024, HashIDs: []uint64{1, 2}}, 0), Options{}, "2 hash ids, but the trace has no block size"},
		{"ids without length", row(format.Row{InputTokens: format.Unknown, HashIDs: []uint64{1}}, 512), Options{}, "expected an input length"},
		{"share", lengths(1), Options{UnstreamedShare: 1.5}, "expected 0 to 1, got 1.5"},
		{"ids range", lengths(1), Options{IDs: &ids}, "expected a range of at least 256 ids"},
		{"ids and pool", lengths(1), Options{IDs: &good, Pool: pool}, "expected token ids or a prompt pool, got both"},
		{"pool and blocks", blockTrace(), Options{Pool: pool}, "row 0: hash ids say what the prompt shares"},
		{"fit alone", lengths(1), Options{Fit: tokenizer}, "only where they come from a pool"},
		{"fit chats", lengths(1), Options{Pool: chats, Fit: tokenizer}, "c.jsonl: prompt 1 is a chat history"},
		{"fit unknown", lengths(1, -1), Options{Pool: pool, Fit: tokenizer}, "row 1: expected an input length"},
		{"period", lengths(1, 1, 1), Options{Loop: &Loop{Period: time.Second}}, "expected a period of at least 2s, the trace's last arrival, got 1s"},
		{"calibration", lengths(1), Options{Calibration: tokens.Calibration{PerWord: -1}}, "calibration: expected a positive number"},
	} {
		_, err := NewPlan(c.trace, c.o)
		require.ErrorContains(t, err, c.want, c.name)
	}
}

func TestConcurrentUse(t *testing.T) {
	tokenizer, err := tokens.New(tokens.CL100K)
	require.NoError(t, err)
	pool, err := NewPool("p.txt", []byte("one two three four five six\nseven eight nine ten\n"))
	require.NoError(t, err)
	for _, p := range []*Plan{
		plan(t, blockTrace(), Options{Seed: 1}),
		plan(t, lengths(5, 6, 7, 8, 9, 10), Options{Seed: 1, Pool: pool, Fit: tokenizer}),
	} {
		var got [4][6]string
		var group sync.WaitGroup
		for worker := range got {
			group.Go(func() {
				for row := range 6 {
					if r, err := p.At(row); err == nil {
						got[worker][row] = r.Prompt
					}
				}
			})
		}
		group.Wait()
		for worker := range got {
			for row := range 6 {
				require.Equal(t, at(t, p, row).Prompt, got[worker][row])
			}
		}
	}
}

// Random traces whose rows extend each other, as conversations do.
func TestBlocksProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		block := rapid.IntRange(8, 40).Draw(t, "block")
		trace := &format.Trace{Name: "t", BlockSize: block}
		var chain []uint64
		for range rapid.IntRange(1, 6).Draw(t, "rows") {
			kept := rapid.IntRange(0, len(chain)).Draw(t, "kept")
			added := rapid.SliceOfN(rapid.Uint64(), 1, 4).Draw(t, "added")
			chain = append(append([]uint64{}, chain[:kept]...), added...)
			length := (len(chain)-1)*block + rapid.IntRange(1, block).Draw(t, "rest")
			trace.Rows = append(trace.Rows, format.Row{InputTokens: int32(length), HashIDs: chain})
		}
		p, err := NewPlan(trace, Options{Seed: rapid.Uint64().Draw(t, "seed")})
		if err != nil {
			t.Fatal(err)
		}
		texts := map[uint64]string{}
		for row, r := range trace.Rows {
			request, err := p.At(row)
			if err != nil {
				t.Fatal(err)
			}
			words := strings.Fields(request.Prompt)
			if len(words) != int(r.InputTokens) {
				t.Fatalf("row %d: %d words, want %d", row, len(words), r.InputTokens)
			}
			for i, id := range r.HashIDs {
				text := strings.Join(words[i*block:min((i+1)*block, len(words))], " ")
				before, ok := texts[id]
				if ok && !strings.HasPrefix(before, text) && !strings.HasPrefix(text, before) {
					t.Fatalf("id %d has two texts", id)
				}
				if len(text) > len(before) {
					texts[id] = text
				}
			}
		}
		seen := map[string]bool{}
		for _, text := range texts {
			if words := strings.Fields(text); len(words) >= 7 {
				if key := strings.Join(words[:7], " "); seen[key] {
					t.Fatal("two ids share a beginning")
				} else {
					seen[key] = true
				}
			}
		}
	})
}

// sharedTrace finds a trace beside the repository.
func sharedTrace(t *testing.T, name string, o format.Options) *format.Trace {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	require.True(t, ok)
	dir := filepath.Dir(file)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		require.NotEqual(t, dir, filepath.Dir(dir), "no go.mod above")
		dir = filepath.Dir(dir)
	}
	f, err := os.Open(filepath.Join(dir, "..", "shared", "traces", name))
	if os.IsNotExist(err) {
		t.Skip("the shared traces are not here")
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	trace, err := format.Read(name, f, o)
	require.NoError(t, err)
	return trace
}

// hitRatio is the share of blocks that an endless prefix cache would have seen before, from the prompts alone.
func hitRatio(t *testing.T, p *Plan, block int) float64 {
	seen := map[[32]byte]bool{}
	blocks, hits := 0, 0
	for row := range p.Len() {
		words := strings.Fields(at(t, p, row).Prompt)
		var key [32]byte
		for start := 0; start < len(words); start += block {
			// A block's identity is its text and all text before it, as in a server's cache.
			text := strings.Join(words[start:min(start+block, len(words))], " ")
			key = sha256.Sum256(append(key[:], text...))
			blocks++
			if seen[key] {
				hits++
			}
			seen[key] = true
		}
	}
	return float64(hits) / float64(blocks)
}

func TestMooncakeSlice(t *testing.T) {
	trace := sharedTrace(t, "mooncake_conversation.jsonl", format.Options{})
	trace = format.Limit(trace, 300)
	p := plan(t, trace, Options{Seed: 1})
	tokenizer, err := tokens.New(tokens.O200K)
	require.NoError(t, err)
	for row := range p.Len() {
		r := at(t, p, row)
		require.Equal(t, int(trace.Rows[row].InputTokens), strings.Count(r.Prompt, " ")+1)
		if row%100 == 0 {
			require.Equal(t, r.InputTokens, tokenizer.Count(r.Prompt))
		}
	}
	want := format.Summarize(trace).Prefix
	require.NotNil(t, want)
	require.Greater(t, want.HitRatio, 0.05)
	require.InDelta(t, want.HitRatio, hitRatio(t, p, trace.BlockSize), 1e-12)
}

func TestHitRatioIsTheTraces(t *testing.T) {
	trace := blockTrace()
	trace.Rows[4] = format.Row{InputTokens: 128, HashIDs: []uint64{1, 2}}
	trace.Rows = trace.Rows[:5]
	p := plan(t, trace, Options{Seed: 1})
	require.InDelta(t, 7.0/13, hitRatio(t, p, 64), 1e-12)
	require.InDelta(t, 7.0/13, format.Summarize(trace).Prefix.HitRatio, 1e-12)
}

func TestGenerate(t *testing.T) {
	m, err := ParseMix("short=0.7@50/10,long=0.3@400/20", nil)
	require.NoError(t, err)
	trace, err := Generate(Config{
		Arrivals: arrival.Config{Rate: 100, Burstiness: 1, Count: 5000, Seed: 21},
		Mix:      m, Prefix: &Prefix{Share: 0.4, Tokens: 64, Groups: 5, Zipf: 1},
	})
	require.NoError(t, err)
	require.Len(t, trace.Rows, 5000)
	require.Equal(t, 64, trace.BlockSize)
	due, err := arrival.Schedule(arrival.Config{Rate: 100, Burstiness: 1, Count: 5000, Seed: 21})
	require.NoError(t, err)

	p := plan(t, trace, Options{Seed: 21})
	groups, beginnings, own := map[uint64]int{}, map[string]bool{}, map[string]bool{}
	ids := map[uint64]bool{}
	classes := map[string]int{}
	for row := range trace.Rows {
		r := trace.Rows[row]
		require.Equal(t, due[row], r.Due)
		classes[r.Class]++
		base := map[string]int32{"short": 50, "long": 400}[r.Class]
		words := strings.Fields(at(t, p, row).Prompt)
		require.Len(t, words, int(r.InputTokens))
		if r.HashIDs == nil {
			require.Equal(t, base, r.InputTokens)
			own[strings.Join(words[:2], " ")] = true
			continue
		}
		require.Equal(t, base+64, r.InputTokens)
		groups[r.HashIDs[0]]++
		beginnings[strings.Join(words[:64], " ")] = true
		for _, id := range r.HashIDs[1:] {
			require.False(t, ids[id] || id < 5, "a block of its own")
			ids[id] = true
		}
	}
	shared := 0
	for _, n := range groups {
		shared += n
	}
	require.InDelta(t, 2000, shared, 3.9*34.7, "a share of 0.4: a binomial deviation of 3.9σ, α = 1e-4")
	require.InDelta(t, 3500, classes["short"], 3.9*32.5)
	require.Len(t, groups, 5)
	require.Len(t, beginnings, 5, "five prefixes in all")
	require.Len(t, own, 5000-shared, "the others share nothing")
	harmonic := 1 + 1.0/2 + 1.0/3 + 1.0/4 + 1.0/5
	chi := 0.0
	for g := range uint64(5) {
		want := float64(shared) / harmonic / float64(g+1)
		d := float64(groups[g]) - want
		chi += d * d / want
	}
	require.Less(t, chi, 23.5, "χ² with 4 degrees of freedom, α = 1e-4")
}

func TestGeneratedTraceSurvivesItsFile(t *testing.T) {
	for _, prefix := range []*Prefix{nil, {Share: 0.5, Tokens: 48, Groups: 2}, {Share: 1, Tokens: 1000, Groups: 1}} {
		m, err := ParseMix(map[string]any{"short": 1.0}, nil)
		require.NoError(t, err)
		trace, err := Generate(Config{Arrivals: arrival.Config{Rate: 7, Burstiness: 0.5, Count: 60, Seed: 4}, Mix: m, Prefix: prefix})
		require.NoError(t, err)
		var file bytes.Buffer
		require.NoError(t, format.Write(&file, trace))
		read, err := format.Read("f.jsonl", &file, format.Options{TimeZero: format.FileZero})
		require.NoError(t, err)
		require.Equal(t, trace.Rows, read.Rows)
		before, after := plan(t, trace, Options{Seed: 4}), plan(t, read, Options{Seed: 4})
		for row := range trace.Rows {
			require.Equal(t, at(t, before, row), at(t, after, row))
		}
		again, err := Generate(Config{Arrivals: arrival.Config{Rate: 7, Burstiness: 0.5, Count: 60, Seed: 4}, Mix: m, Prefix: prefix})
		require.NoError(t, err)
		require.Equal(t, trace, again)
	}
}

func TestGenerateErrors(t *testing.T) {
	m, err := ParseMix(map[string]any{"short": 1.0}, nil)
	require.NoError(t, err)
	ok := arrival.Config{Rate: 7, Burstiness: 1, Count: 60}
	for _, c := range []struct {
		in   Config
		want string
	}{
		{Config{Arrivals: ok}, "mix: expected at least one class"},
		{Config{Mix: m}, "generate: arrival: "},
		{Config{Arrivals: ok, Mix: m, Prefix: &Prefix{Share: 2}}, "prefix.share: expected 0 to 1, got 2"},
		{Config{Arrivals: ok, Mix: m, Prefix: &Prefix{Share: 1}}, "prefix.tokens: expected 1 to"},
	} {
		_, err := Generate(c.in)
		require.ErrorContains(t, err, c.want)
	}
}

func TestParsePrefix(t *testing.T) {
	p, err := ParsePrefix(map[string]any{"share": 0.5, "tokens": 100, "groups": 3, "zipf": 1.1})
	require.NoError(t, err)
	require.Equal(t, Prefix{Share: 0.5, Tokens: 100, Groups: 3, Zipf: 1.1}, p)
	p, err = ParsePrefix(map[string]any{"tokens": 100})
	require.NoError(t, err)
	require.Equal(t, Prefix{Share: 1, Tokens: 100, Groups: 1}, p)
	for _, c := range []struct {
		in   any
		want string
	}{
		{5, "prefix: expected an object, got 5"},
		{map[string]any{}, "prefix.tokens: expected 1 to 16777216, got 0"},
		{map[string]any{"tokens": 1, "share": -1}, "prefix.share: expected 0 to 1, got -1"},
		{map[string]any{"tokens": 1, "groups": 2_000_000}, "prefix.groups: expected 1 to 1000000, got 2000000"},
		{map[string]any{"tokens": 1, "zipf": 99}, "prefix.zipf: expected 0 to 10, got 99"},
		{map[string]any{"tokens": 1, "group": 2}, "prefix.group: unknown key: expected one of groups, share, tokens, zipf"},
		{map[string]any{"tokens": 1.5}, "prefix.tokens: expected a whole number"},
	} {
		_, err := ParsePrefix(c.in)
		require.ErrorContains(t, err, c.want)
	}
}

func BenchmarkAt(b *testing.B) {
	blocks := &format.Trace{Name: "t", BlockSize: 512, Rows: []format.Row{{InputTokens: 2000, OutputTokens: 1, HashIDs: []uint64{1, 2, 3, 4}}}}
	ids := tokens.IDRange{Low: 1000, High: 120_000}
	for _, c := range []struct {
		name  string
		trace *format.Trace
		o     Options
	}{
		{"text/2000", lengths(2000), Options{}},
		{"blocks/2000", blocks, Options{}},
		{"ids/2000", lengths(2000), Options{IDs: &ids}},
		{"text/128000", lengths(128_000), Options{}},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := plan(b, c.trace, c.o)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.At(0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSampler(b *testing.B) {
	m, err := ParseMix("chat", nil)
	require.NoError(b, err)
	s, err := NewSampler(m, 1)
	require.NoError(b, err)
	row := 0
	b.ReportAllocs()
	for b.Loop() {
		s.At(row)
		row++
	}
}

// TestAGeneratedTraceKnowsItsLength: what users ask for is a rate over a time, and that is what a summary tells them.
func TestAGeneratedTraceKnowsItsLength(t *testing.T) {
	t.Parallel()
	mix, err := ParseMix("chat", nil)
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		arrivals arrival.Config
		length   time.Duration
		rate     float64
	}{
		"a rate for a time": {arrival.Config{Rate: 10, Duration: time.Minute, Burstiness: 1, Seed: 3}, time.Minute, 10},
		"stages": {arrival.Config{
			Rate: 0, Stages: []arrival.Stage{{Duration: 10 * time.Second, Target: 10}, {Duration: 20 * time.Second, Target: 10}},
			Burstiness: 1, Seed: 3,
		}, 30 * time.Second, 250.0 / 30},
		"a number":           {arrival.Config{Rate: 10, Count: 100, Burstiness: math.Inf(1), Seed: 3}, 10 * time.Second, 10},
		"a number of bursts": {arrival.Config{Rate: 5, Count: 4, Burstiness: 0.1, Seed: 0}, 800 * time.Millisecond, 5},
		"a number on stages": {arrival.Config{
			Stages: []arrival.Stage{{Duration: 10 * time.Second, Target: 10}}, Count: 8, Burstiness: 1, Seed: 3,
		}, 4 * time.Second, 2},
	} {
		made, err := Generate(Config{Arrivals: tt.arrivals, Mix: mix})
		require.NoError(t, err, name)
		require.Equal(t, tt.length, made.Length, name)
		rate, ok := made.OfferedRate()
		require.True(t, ok, name)
		require.InDelta(t, tt.rate, rate, 1e-9, name)
	}
}

// TestIdealHitRatioIsWhatAnEngineServes: the ratio of a trace is that of an engine with room enough which serves its rows one after
// the other, from a cold cache, but for the engine's finer blocks.
func TestIdealHitRatioIsWhatAnEngineServes(t *testing.T) {
	t.Parallel()
	mix, err := ParseMix("s=1@300/2", nil)
	require.NoError(t, err)
	made, err := Generate(Config{
		Arrivals: arrival.Config{Rate: 50, Count: 300, Burstiness: 1, Seed: 771}, Mix: mix,
		Prefix: &Prefix{Share: 0.1, Tokens: 2048, Groups: 1},
	})
	require.NoError(t, err)
	broken := &format.Trace{BlockSize: 64, Rows: []format.Row{
		{InputTokens: 128, HashIDs: []uint64{1, 2}},
		{InputTokens: 128, HashIDs: []uint64{2, 1}},
		{InputTokens: 150, HashIDs: []uint64{2, 1, 3}},
		{InputTokens: 100, HashIDs: []uint64{4, 5}},
		{InputTokens: 200, HashIDs: []uint64{4, 5, 6, 7}},
		{InputTokens: 1000},
	}}
	for name, c := range map[string]struct {
		trace *format.Trace
		off   float64 // what blocks of 16 tokens, and the last token that an engine computes always, may take off
	}{"some rows share a prefix": {made, 0.01}, "prefixes that break": {broken, 0.03}} {
		config := llmtest.DefaultConfig()
		config.NumBlocks, config.BlockSize, config.MaxModelLen = 100_000, 16, 100_000
		arrivals := make([]llmtest.Arrival, len(c.trace.Rows))
		for i, r := range c.trace.Rows {
			arrivals[i] = llmtest.Arrival{
				At: time.Duration(i) * time.Hour, PromptTokens: int(r.InputTokens), MaxTokens: 1,
				Blocks: llmtest.ExpandBlocks(r.HashIDs, c.trace.BlockSize, config.BlockSize),
			}
		}
		result, err := llmtest.Simulate(config, arrivals, llmtest.SimOptions{})
		require.NoError(t, err)
		served := float64(result.Stats.PrefixHits) / float64(result.Stats.PrefixQueries)
		ideal := format.Summarize(c.trace).Prefix.TokenHitRatio
		require.Greater(t, served, 0.05, name)
		require.GreaterOrEqual(t, ideal, served, name)
		require.Less(t, ideal-served, c.off, name)
	}
}
