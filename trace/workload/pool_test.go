package workload

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/safeqps/xk6-safeqps/llm/tokens"
)

func TestNewPool(t *testing.T) {
	for _, c := range []struct {
		name, content string
		want          []string
	}{
		{"text", "\xef\xbb\xbffirst prompt\r\n\r\n  second \nthird", []string{"first prompt", "  second ", "third"}},
		{"jsonl", "{\"prompt\":\"a\"}\n\n{\"text\":\"b\\nc\"}\r\n{\"text_input\":\"d\"}\n{\"messages\":[{\"role\":\"user\",\"content\":\"e\"}]}", []string{"a", "b\nc", "d", "e"}},
		{"sharegpt", `[{"id":"1","conversations":[{"from":"system","value":"s"},{"from":"human","value":"q"},{"from":"gpt","value":"r"}]},` + "\n" + `{"prompt":"x"}]`, []string{"q", "x"}},
	} {
		p, err := NewPool(c.name, []byte(c.content))
		require.NoError(t, err)
		require.Equal(t, len(c.want), p.Len())
		got := make([]string, 0, len(c.want))
		for _, e := range p.entries {
			require.Nil(t, e.messages)
			got = append(got, e.text)
		}
		require.Equal(t, c.want, got, c.name)
	}
	p, err := NewPool("chat", []byte(`{"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"}]}`))
	require.NoError(t, err)
	require.JSONEq(t, `[{"role":"system","content":"s"},{"role":"user","content":"q"}]`, string(p.entries[0].messages))
	request := at(t, plan(t, lengths(5), Options{Pool: p}), 0)
	require.JSONEq(t, `[{"role":"system","content":"s"},{"role":"user","content":"q"}]`, string(request.Messages))
	require.Empty(t, request.Prompt)

	for _, c := range []struct{ name, content, want string }{
		{"empty", " \n\n", "f: expected at least one prompt, got none"},
		{"latin1", "ok\ncaf\xe9\n", "f:2: expected UTF-8 text"},
		{"bad line", "{\"prompt\":\"a\"}\n{\"prompt\":", "f:2: expected a JSON object with a prompt"},
		{"no prompt", "{\"prompt\":\"a\"}\n{\"question\":\"a\"}", "f:2: expected prompt, text, text_input, messages"},
		{"empty prompt", `{"prompt":""}`, "f:1: expected prompt"},
		{"bad message", `{"messages":["a"]}`, "f:1: messages[0]: expected an object with a role"},
		{"bad array", `[{"prompt":"a"}`, "f: expected a JSON array of prompts"},
		{"bad element", `[{"prompt":"a"},{}]`, "f: element 2: expected prompt"},
		{"no human", `[{"conversations":[{"from":"gpt","value":"a"}]}]`, "f: element 1: expected prompt"},
	} {
		_, err := NewPool("f", []byte(c.content))
		require.ErrorContains(t, err, c.want, c.name)
	}
}

func numbered(t *testing.T, n int) *Pool {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "prompt %d\n", i)
	}
	p, err := NewPool("p.txt", []byte(b.String()))
	require.NoError(t, err)
	return p
}

func TestPoolIsDrawnWithoutReplacement(t *testing.T) {
	const n = 97
	inputs := make([]int32, 3*n)
	for i := range inputs {
		inputs[i] = 5
	}
	pool := numbered(t, n)
	p := plan(t, lengths(inputs...), Options{Seed: 4, Pool: pool})
	epochs := make([][]string, 3)
	for row := range inputs {
		r := at(t, p, row)
		require.Zero(t, r.InputTokens, "a prompt that was not fitted has a length that nobody knows")
		epochs[row/n] = append(epochs[row/n], r.Prompt)
	}
	require.NotEqual(t, epochs[0], epochs[1], "each pass has an order of its own")
	require.NotEqual(t, epochs[1], epochs[2])
	inOrder := make([]string, 0, n)
	for _, e := range pool.entries {
		inOrder = append(inOrder, e.text)
	}
	require.NotEqual(t, inOrder, epochs[0])
	slices.Sort(inOrder)
	for _, epoch := range epochs {
		slices.Sort(epoch)
		require.Equal(t, inOrder, epoch)
	}
	other := plan(t, lengths(inputs...), Options{Seed: 5, Pool: pool})
	same := 0
	for row := range n {
		if at(t, other, row).Prompt == at(t, p, row).Prompt {
			same++
		}
	}
	require.Less(t, same, 8, "two random orders agree in one place on average")
}

func TestPermute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 500).Draw(t, "n")
		key := rapid.Uint64().Draw(t, "key")
		seen := make([]bool, n)
		for i := range n {
			j := permute(key, n, i)
			if j < 0 || j >= n || seen[j] {
				t.Fatalf("%d goes to %d, which is out of range or taken", i, j)
			}
			seen[j] = true
		}
	})
	// Where an item goes is uniform over keys: χ² over 16 places with 15 degrees of freedom, α = 1e-4.
	for i := range 16 {
		counts := make([]float64, 16)
		for key := range uint64(16_000) {
			counts[permute(key*0x9e3779b97f4a7c15, 16, i)]++
		}
		chi := 0.0
		for _, c := range counts {
			chi += (c - 1000) * (c - 1000) / 1000
		}
		require.Less(t, chi, 44.3, "item %d", i)
	}
}

var fitTexts = []string{
	"Hello, world! It's a test; isn't it?  Two spaces, a tab\tand\nnew lines.\n\nEnd.",
	"x", "   leading and trailing   ", "1234567 89 10.5% of $3,000.00 (approx.)",
	"东京是日本的首都，也是世界上人口最多的城市之一。", "naïve café — “quotes” … ümläut", "don't stop\u00a0here \u3000 ok", "🙂🙃 🙂",
	"function f(x) {\n\treturn x*2; // twice \n}\n", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\"q\" 'r' `s` !?!?.\r\n ok",
}

func TestFit(t *testing.T) {
	pool := &Pool{name: "p"}
	for i, text := range fitTexts {
		pool.entries = append(pool.entries, poolEntry{line: i + 1, text: text})
	}
	for _, name := range tokens.Names() {
		tokenizer, err := tokens.New(name)
		require.NoError(t, err)
		f, err := newFitter(pool, tokenizer, tokens.NewBuilder())
		require.NoError(t, err)
		for i, text := range fitTexts {
			whole := tokenizer.Count(strings.TrimRight(text, whiteSpace))
			for n := 1; n <= whole+5; n++ {
				got := f.fit(i, n, 1, 7)
				require.Equal(t, n, tokenizer.Count(got), "%s: %q to %d: %q", name, text, n, got)
				require.Equal(t, strings.TrimRight(got, whiteSpace), got, "no white space at the end, which a chat template would trim")
				if n >= whole {
					require.True(t, strings.HasPrefix(got, strings.TrimRight(text, whiteSpace)), "the whole text is kept: %q", got)
				}
			}
		}
	}
}

func TestFitProperty(t *testing.T) {
	all := make([]*tokens.Tokenizer, 0, len(tokens.Names()))
	for _, name := range tokens.Names() {
		tokenizer, err := tokens.New(name)
		require.NoError(t, err)
		all = append(all, tokenizer)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("ab C1.,'!\n\t\r-é東 \u00a0🙂s")), 1, 60, -1).Draw(t, "text")
		tokenizer := rapid.SampledFrom(all).Draw(t, "tokenizer")
		f, err := newFitter(&Pool{entries: []poolEntry{{text: text}}}, tokenizer, tokens.NewBuilder())
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(1, 70).Draw(t, "n")
		if got := f.fit(0, n, 1, 2); tokenizer.Count(got) != n {
			t.Fatalf("%s: %q to %d is %q, %d tokens", tokenizer.Name(), text, n, got, tokenizer.Count(got))
		}
	})
}

func TestFittedPlan(t *testing.T) {
	tokenizer, err := tokens.New(tokens.CL100K)
	require.NoError(t, err)
	pool, err := NewPool("p.txt", []byte("The quick brown fox jumps over the lazy dog, again and again.\n"))
	require.NoError(t, err)
	p := plan(t, lengths(20, 25, 60, 60), Options{Pool: pool, Fit: tokenizer, Calibration: tokens.Calibration{PerWord: 1, Overhead: 15}})
	require.Equal(t, "The quick brown fox jumps", at(t, p, 0).Prompt)
	require.Equal(t, "The quick brown fox jumps over the lazy dog,", at(t, p, 1).Prompt)
	long, other := at(t, p, 2), at(t, p, 3)
	require.Equal(t, 45, tokenizer.Count(long.Prompt))
	require.True(t, strings.HasPrefix(long.Prompt, "The quick brown fox jumps over the lazy dog, again and again. "))
	require.Equal(t, 60, long.InputTokens)
	require.NotEqual(t, long.Prompt, other.Prompt, "the filling is the row's own")
}

func FuzzNewPool(f *testing.F) {
	f.Add([]byte("a\nb"))
	f.Add([]byte(`[{"conversations":[{"from":"human","value":"a"}]}]`))
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"text"}]}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		p, err := NewPool("f", content)
		if err == nil && p.Len() == 0 {
			t.Fatal("an empty pool")
		}
	})
}
