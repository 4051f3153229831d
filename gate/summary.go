package gate

import (
	"fmt"
	"io"
	"os"

	"github.com/grafana/sobek"

	"github.com/safeqps/xk6-safeqps/gate/report"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// handleSummary is the script's `export { handleSummary } from 'k6/x/llm/gate'`. It prints the verdict and returns
// nothing, which tells k6 to print its own summary below. k6 has stopped its outputs by then, so the evidence is whole.
func (m *moduleInstance) handleSummary(sobek.Value) error {
	out := m.gate.output()
	if out == nil {
		_, err := fmt.Fprint(os.Stdout, "\nNo verdict: no evidence was kept. Run with --out llm=DIR, then the verdict stands here and in DIR.\n")

		return err //nolint:wrapcheck // nothing to add
	}

	return out.summarise()
}

// summarise judges the run by its contract, keeps the verdict with the evidence, and prints it.
func (o *Output) summarise() error {
	if o.writer == nil { // it could not begin: what lies in the directory is another run's
		return printTo(o.stdout, fmt.Sprintf("\nNo verdict: this run was not recorded in %s.\n", o.dir))
	}
	if o.contract == nil {
		return printTo(o.stdout, fmt.Sprintf("\nNo verdict: the script has no gate.monitor(contract). The evidence is in %s:\n"+
			"judge it with `k6 x llm gate verdict %s --contract slo.yaml`.\n", o.dir, o.dir))
	}
	run, err := results.Open(o.dir)
	if err != nil {
		return fmt.Errorf("verdict: %w", err)
	}
	if !run.Info.Started.Equal(o.started) {
		return printTo(o.stdout, fmt.Sprintf("\nNo verdict: what is in %s is not of this run, whose evidence is lost.\n", o.dir))
	}
	judged, err := verdict.Judge(run, o.contract)
	if err != nil {
		return fmt.Errorf("verdict: %w", err)
	}
	if err := report.Write(o.dir, judged); err != nil {
		return fmt.Errorf("verdict: %w", err)
	}

	return printTo(o.stdout, "\n"+string(report.Text(judged, false)))
}

func printTo(w io.Writer, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("printing the verdict: %w", err)
	}

	return nil
}
