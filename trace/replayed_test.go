package trace

import (
	"encoding/json"
	"fmt"
	"testing"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	"go.k6.io/k6/lib"

	"github.com/safeqps/xk6-safeqps/trace/format"
)

// What scenarios do to a recorded trace is said, whichever call made them; a generated one is made to measure.
func TestReplayedSaysHowATraceDiffersFromItsFile(t *testing.T) {
	t.Parallel()
	const stock = `{s: {executor: "constant-arrival-rate", rate: 5, duration: "1s", preAllocatedVUs: 1}}`
	for i, test := range []struct {
		name, open, scenarios string
		want                  []format.Label
	}{
		{"whole", `trace.open("conversation.jsonl", {seed})`, `({s: w.scenario()})`, nil},
		{"half", `trace.open("conversation.jsonl", {seed})`, `({s: w.scenario({duration: "400ms"})})`, []format.Label{
			{Kind: "part", Detail: "4 of 8 rows"},
		}},
		{
			"the whole in phases", `trace.open("conversation.jsonl", {seed})`, `w.phases({warmup: "300ms", steady: "500ms"})`, nil,
		},
		{"a part in phases", `trace.open("conversation.jsonl", {seed})`, `w.phases({warmup: "200ms", steady: "400ms"})`, []format.Label{
			{Kind: "part", Detail: "6 of 8 rows"},
		}},
		{"a loop", `trace.open("conversation.jsonl", {seed, loop: true})`, `({s: w.scenario({duration: "2s"})})`, []format.Label{
			{Kind: "loop", Detail: "2.5 passes through its 8 rows"},
		}},
		{"phases that are too long", `trace.open("conversation.jsonl", {seed})`, `w.phases({steady: "1600ms"})`, []format.Label{
			{Kind: "loop", Detail: "2 passes through its 8 rows"},
		}},
		{"a staircase", `trace.open("conversation.jsonl", {seed})`, `w.steps([5, 20], {hold: "400ms"})`, []format.Label{
			{Kind: "steps", Detail: "at 0.5 to 2 times its own pace"},
			{Kind: "loop", Detail: "1.25 passes through its 8 rows"},
		}},
		{"one step", `trace.open("conversation.jsonl", {seed})`, `w.steps([5], {hold: "400ms", settle: "400ms"})`, []format.Label{
			{Kind: "steps", Detail: "at 0.5 times its own pace"}, {Kind: "part", Detail: "4 of 8 rows"},
		}},
		{"its own pace", `trace.open("conversation.jsonl", {seed})`, `w.steps([10], {hold: "800ms"})`, nil},
		{
			"two parts in two scenarios", `trace.open("conversation.jsonl", {seed})`,
			`({a: {...w.scenario(), from: 0, to: 5, duration: "1s"}, b: {...w.scenario(), from: 3, to: 8, origin: "300ms", duration: "1s"}})`, nil,
		},
		{
			"written by hand", `trace.open("conversation.jsonl", {seed})`,
			`({a: {executor: "trace-arrival-rate", trace: w.id, preAllocatedVUs: 1, from: 6, to: 10, origin: "600ms", speed: 4}})`,
			[]format.Label{
				{Kind: "steps", Detail: "at 4 times its own pace"},
				{Kind: "part", Detail: "4 of 8 rows"},
				{Kind: "loop", Detail: "1.25 passes through its 8 rows"},
			},
		},
		{"stages", `trace.open("conversation.jsonl", {seed})`, `(w.stages({bin: "200ms"}), ` + stock + `)`, []format.Label{
			{Kind: "arrivals", Detail: "evened out in bins of 200ms"},
		}},
		{"a stock executor", `trace.open("conversation.jsonl", {seed})`, stock, []format.Label{
			{Kind: "arrivals", Detail: "those of the scenarios"},
		}},
		{
			"generated, in part", `trace.generate({rate: 50, duration: "2s", mix: "chat", seed})`, `w.phases({steady: "1s"})`, nil,
		},
		{
			"generated, in steps", `trace.generate({rate: 50, duration: "2s", mix: "chat", seed})`, `w.steps([10, 20], {hold: "1s"})`, nil,
		},
		{"generated, for a stock executor", `trace.generate({rate: 50, duration: "2s", mix: "chat", seed})`, stock, nil},
		{
			"generated, repeated", `trace.generate({rate: 50, burstiness: "constant", duration: "2s", mix: "chat", seed})`, `w.phases({steady: "3s"})`,
			[]format.Label{{Kind: "loop", Detail: "1.5 passes through its 100 rows"}},
		},
		{
			"generated, in stages", `trace.generate({rate: 50, duration: "2s", mix: "chat", seed})`, `(w.stages({bin: "1s"}), ` + stock + `)`,
			[]format.Label{{Kind: "arrivals", Detail: "evened out in bins of 1s"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			rt := p.vu(t)
			js(t, rt, fmt.Sprintf("var seed = %d, w = %s", 1000+i, test.open)) // another id in each case
			var scenarios lib.ScenarioConfigs
			require.NoError(t, json.Unmarshal([]byte(asJSON(t, rt, test.scenarios)), &scenarios))
			id := js(t, rt, "w.id").String()
			if len(test.want) > 0 && test.want[0].Kind == labelArrivals {
				require.Nil(t, replayed(id, scenarios), "nobody has asked it for a request")
			}
			logger, _ := logtest.NewNullLogger()
			toIteration(t.Context(), rt, &lib.State{Logger: logger, GetScenarioGlobalVUIter: func() uint64 { return 0 }})
			js(t, rt, "w.next()")
			require.Equal(t, test.want, replayed(id, scenarios))
			for _, label := range test.want {
				require.Contains(t, Replayed(scenarios), label)
			}
		})
	}
}
