package llmtest_test

import (
	"fmt"
	"time"

	"github.com/safeqps/xk6-safeqps/llm/llmtest"
)

func ExampleSimulate() {
	cfg := llmtest.DefaultConfig()
	cfg.MaxNumSeqs = 1
	res, err := llmtest.Simulate(cfg, []llmtest.Arrival{
		{At: 0, PromptTokens: 100, MaxTokens: 3},
		{At: 5 * time.Millisecond, PromptTokens: 50, MaxTokens: 2},
	}, llmtest.SimOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range res.Requests {
		ttft, _ := r.TTFT()
		tpot, _ := r.TPOT()
		fmt.Println(r.Status, "TTFT", ttft, "TPOT", tpot)
	}
	// Output:
	// completed TTFT 10ms TPOT 6.15ms
	// completed TTFT 25.3ms TPOT 6.15ms
}
