package llm

import (
	"fmt"
	"math"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTheModelOfARequestIsAFunctionOfItsRow(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { write(w, delta("a"), finish, done) })
	const ask = `for (let row = 0; row < 200; row++) {
		client.chat({messages: [{role: "user", content: "hi"}], row: row});
	} result = {};`
	models := func(options string) []string {
		v := newVU(t)
		v.must(fmt.Sprintf(`const client = new llm.Client({baseURL: %q, %s}); `, s.URL, options) + ask)
		var list []string
		for _, sample := range v.seen()["llm_requests"] {
			model, _ := sample.Tags.Get("model")
			list = append(list, model)
		}
		require.Len(t, list, 200)

		return list
	}
	first := models(`model: {base: 3, "base:legal": 1}`)
	require.Equal(t, first, models(`model: {"base:legal": 25, base: 75}`), "shares decide, whatever their unit and order")
	require.NotEqual(t, first, models(`model: {base: 3, "base:legal": 1}, seed: 1`))
	legal := 0
	for _, model := range first {
		if model == "base:legal" {
			legal++
		}
	}
	require.InDelta(t, 50, legal, 4*math.Sqrt(200*0.25*0.75))
	require.Contains(t, s.last().body, `"model":"`+first[199]+`"`, "what is tagged is what is asked for")
}

func TestSharesOfAModelMix(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Float64Range(0, 10), 1, 5).Draw(t, "weights")
		seed := rapid.Uint64().Draw(t, "seed")
		mix := modelMix{seed: seed}
		total := 0.0
		for _, w := range weights {
			total += w
		}
		if total == 0 {
			t.Skip("nothing to choose from")
		}
		for i, w := range weights {
			mix.models = append(mix.models, weightedModel{fmt.Sprint(i), w / total})
		}
		const n = 4000
		counts := map[string]float64{}
		for i := range n {
			counts[mix.choose(byRow, uint64(i))]++ //nolint:gosec // not negative
		}
		for i, w := range weights {
			p := w / total
			if w == 0 {
				require.Zero(t, counts[fmt.Sprint(i)])
			}
			require.InDelta(t, n*p, counts[fmt.Sprint(i)], 1+6*math.Sqrt(n*p*(1-p)))
		}
	})
}

func TestTheModelWithoutARowIsThatOfTheIteration(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { write(w, delta("a"), finish, done) })
	v := newVU(t)
	iteration := uint64(0)
	v.state.GetScenarioGlobalVUIter = func() uint64 { return iteration }
	v.must(fmt.Sprintf(`globalThis.client = new llm.Client({baseURL: %q, model: {a: 1, b: 1}});
		globalThis.session = new llm.Session(client); result = {};`, s.URL))
	var ofRequest, ofSession []string
	tag := func() string {
		samples := v.seen()["llm_requests"]
		require.Len(t, samples, 1)
		model, _ := samples[0].Tags.Get("model")

		return model
	}
	for ; iteration < 40; iteration++ {
		v.must(`client.chat({messages: [{role: "user", content: "hi"}]}); result = {};`)
		ofRequest = append(ofRequest, tag())
		v.must(`client.chat({messages: [{role: "user", content: "hi again"}]}); result = {};`)
		require.Equal(t, ofRequest[iteration], tag(), "one iteration is one user's")
		v.must(`session.chat("hi"); result = {};`)
		ofSession = append(ofSession, tag())
		require.Equal(t, ofSession[0], ofSession[iteration], "a session stays with its model")
		v.must(`client.chat({messages: [{role: "user", content: "hi"}], model: "c"}); result = {};`)
		require.Equal(t, "c", tag(), "the request's own goes first")
	}
	require.Contains(t, ofRequest, "a")
	require.Contains(t, ofRequest, "b")
}

func TestWrongModelMixes(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]string{
		`model: {}`:                   `llm.Client: option "model": got an object without models, expected the name of a model, or weights`,
		`model: {a: -1}`:              `llm.Client: option "model.a": got -1, expected a weight, 0 or more`,
		`model: {a: 1, b: "x"}`:       `llm.Client: option "model.b": got "x", expected a weight, 0 or more`,
		`model: {a: 1, b: NaN}`:       `option "model.b": got NaN`,
		`model: {a: 0, b: 0}`:         `option "model": got weights that are all 0`,
		`model: {"": 1}`:              `option "model": got a model without a name`,
		`model: {a: 1e308, b: 1e308}`: `option "model": got weights whose sum is beyond any number`,
		`model: 7`:                    `option "model": got 7, expected the name of a model, or weights`,
		`model: ["a"]`:                `option "model": got an array`,
		`model: "m", seed: -1`:        `option "seed": got -1, expected a whole number, 0 or more`,
	} {
		_, err := newVU(t).run(`new llm.Client({baseURL: "http://127.0.0.1:1", ` + options + `})`)
		require.ErrorContains(t, err, want)
	}
}
