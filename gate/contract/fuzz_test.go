package contract

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"
)

// Whatever the bytes, Load returns a contract or problems with places, and what it returns can be used.
func FuzzLoad(f *testing.F) {
	for _, file := range []string{"testdata/minimal.yaml", "testdata/full.yaml"} {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, seed := range []string{
		"", "a", "- a", "? a\n: b", "a: *a", "a: &a {b: *a}", "%YAML 1.2\n---\na: 1", "{a: ${X}}", "a: |\n  b", "\t", "\"", "a: !!x y",
		"capacity_gate: {ttft_p95: '<= ${X:-1s}'}", "capacity_gate: {by_class: {a: {itl_p99.9: '< baseline - 5%'}}}",
		"abort: {queue_growth: {for: 1s}, unhealthy: true for 1s after 2s}", "---\n---\n", "a: 1\n...\nb", "<<: *x", "capacity_gate:\r\n ttft_p95: <= 1s\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Load("f.yaml", data, func(name string) (string, bool) { return "<= 1s", name == "X" })
		if err != nil {
			var problems Errors
			if !errors.As(err, &problems) || len(problems) == 0 || c != nil {
				t.Fatalf("not Errors: %v", err)
			}
			for _, p := range problems {
				if p.File != "f.yaml" || p.Pos.Line < 1 || p.Pos.Column < 1 || p.Found == "" || p.Expected == "" {
					t.Fatalf("problem without a place or a reason: %+v", p)
				}
			}
			return
		}
		if err := Explain(io.Discard, c); err != nil {
			t.Fatal(err)
		}
		for _, threshold := range Thresholds(c) {
			checkAsK6(t, threshold)
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(text); err != nil {
			t.Fatalf("what Load gave is no contract to Decode: %v", err)
		}
		baseline := map[string]float64{}
		for _, name := range c.BaselineNames() {
			baseline[name] = 0.5
		}
		if resolved, err := c.Resolve(baseline); err == nil {
			for _, threshold := range Thresholds(resolved) {
				checkAsK6(t, threshold)
			}
			text, err := json.Marshal(resolved)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Decode(text); err != nil {
				t.Fatalf("what Resolve gave is no contract to Decode: %v", err)
			}
		}
	})
}
