package merge_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/merge"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// joinedOr joins two halves of a test, the options of which were these.
func joinedOr(t *testing.T, first, second string) error {
	t.Helper()
	parts := generate(5).split(2)
	dirs := make([]string, len(parts))
	for i, options := range []string{first, second} {
		if options != "" {
			parts[i].edit = func(info *results.Info) { info.Options = []byte(options) }
		}
		dirs[i] = parts[i].write(t, slo)
	}
	_, err := merge.Merge(dirs, filepath.Join(t.TempDir(), "merged"), merge.Options{})

	return err
}

// One script offers another load with -e RATE=6 than with -e RATE=60.
func TestInstancesThatWereToOfferAnotherLoadAreNotJoined(t *testing.T) {
	t.Parallel()
	const s = `{"scenarios":{"s":{"executor":"ramping-arrival-rate","startRate":60,"preAllocatedVUs":9,"env":{"KEY":"secret"},` +
		`"tags":{"phase":"steady","pod":"a"},"stages":[{"duration":"1m","target":60}]}}}`
	for name, c := range map[string]struct{ old, new, want string }{
		"an option":       {`"startRate":60`, `"startRate":6`, "scenario s: startRate: 60 and 6"},
		"a stage":         {`"target":60`, `"target":6`, "scenario s: stages[0].target: 60 and 6"},
		"another stage":   {`"target":60}`, `"target":60},{}`, `scenario s: stages: [{"duration":"1m","target":60}] and [{"duration":"1m","target":60},{}]`},
		"an option less":  {`"startRate":60,`, ``, "scenario s: startRate: 60 and nothing"},
		"the executor":    {`ramping-arrival-rate`, `ramping-vus`, `scenario s: executor: "ramping-arrival-rate" and "ramping-vus"`},
		"a tag":           {`"phase":"steady"`, `"phase":"warmup"`, `scenario s: tags.phase: "steady" and "warmup"`},
		"an environment":  {`secret`, `other`, "scenario s: env.KEY"},
		"another one":     {`"scenarios":{`, `"scenarios":{"more":{"executor":"constant-vus"},`, "scenario more, which only one of them has"},
		"another name":    {`{"s":`, `{"z":`, "scenario s, which only one of them has; scenario z, which only one of them has"},
		"no options":      {s, ``, "options, which only one of them has"},
		"VUs":             {`"preAllocatedVUs":9`, `"preAllocatedVUs":90,"maxVUs":99`, ""},
		"a tag of a name": {`"pod":"a"`, `"pod":"b"`, ""},
		"null":            {`"startRate":60`, `"rate":null,"startRate":60.0`, ""},
		"a segment":       {`{"scenarios"`, `{"executionSegment":"1/2:1","scenarios"`, ""},
		"a watch":         {`"scenarios":{`, `"scenarios":{"llm_monitor":{"executor":"llm-monitor"},`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, s, c.old)
			other := strings.Replace(s, c.old, c.new, 1)
			err := joinedOr(t, s, other)
			if c.want == "" {
				require.NoError(t, err)

				return
			}
			require.ErrorIs(t, err, merge.ErrDifferent)
			require.ErrorContains(t, err, "differ in "+c.want)
			require.NotContains(t, err.Error(), "secret")
			require.ErrorIs(t, joinedOr(t, other, s), merge.ErrDifferent)
		})
	}
	require.ErrorContains(t, joinedOr(t, s, `{"scenarios":7}`), "run.json: options: ")
	require.ErrorContains(t, joinedOr(t, s, `{"scenarios":{"s":7}}`), "run.json: options: scenario s: ")
}

// How a contract is written is not what it says.
func TestAContractThatIsWrittenOtherwiseIsTheSame(t *testing.T) {
	t.Parallel()
	parts := generate(5).split(2)
	rewritten := func(edit func(map[string]any)) func(*results.Info) {
		return func(info *results.Info) {
			var contract map[string]any
			require.NoError(t, json.Unmarshal(info.Contract, &contract))
			edit(contract)
			var text bytes.Buffer
			encoder := json.NewEncoder(&text)
			encoder.SetEscapeHTML(false)
			require.NoError(t, encoder.Encode(contract))
			require.NotEqual(t, string(info.Contract), text.String())
			info.Contract = bytes.TrimSpace(text.Bytes())
		}
	}
	first := parts[0].write(t, slo)
	merged := func(edit func(*results.Info)) error {
		other := parts[1]
		other.edit = edit
		_, err := merge.Merge([]string{first, other.write(t, slo)}, filepath.Join(t.TempDir(), "merged"), merge.Options{})

		return err
	}
	require.NoError(t, merged(rewritten(func(map[string]any) {})))
	err := merged(rewritten(func(c map[string]any) { c["confidence"] = 0.99 }))
	require.ErrorIs(t, err, merge.ErrDifferent)
	require.ErrorContains(t, err, "differ in contract: confidence: 0.95 and 0.99")
	require.ErrorContains(t, merged(func(info *results.Info) { info.Contract = nil }), "differ in contract, which only one of them has")
	require.ErrorContains(t, merged(func(info *results.Info) { info.Decision = []byte(`{"a":1}`) }),
		"differ in decision, which only one of them has")
}
