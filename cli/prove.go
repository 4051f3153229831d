package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/compare"
	"github.com/safeqps/xk6-safeqps/gate/merge"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

const (
	proofDir       = "prove-client" // in the directory of a search: the evidence of all generators together
	comparisonFile = "compare.json" // in proofDir
	proofFile      = "proof.json"   // in proofDir
	generators     = 2
)

// proveClient repeats the probe that the answer rests on with two load generators, each with its segment of the same
// arrivals, and compares. The seed is another one: the same prompts would come from the service's prefix cache.
//
// A proof that was made earlier stands, whether or not one is asked for now.
func (p *prober) proveClient(ctx context.Context, env environment, result *capacity.Result, asked bool) error {
	answer, ok := result.Answer()
	if !ok || !result.Confirmed {
		if asked {
			fmt.Fprintln(env.stderr, "  no client proof: there is no confirmed rate to repeat")
		}

		return nil
	}
	proof, err := p.storedProof(answer)
	if err != nil || (proof == nil && !asked) {
		return err
	}
	if proof == nil {
		fmt.Fprintf(env.stderr, "  client proof: %d generators at %.4g requests/s\n", generators, answer.Rate)
		if proof, err = p.runProof(ctx, answer); err != nil {
			return fmt.Errorf("client proof: %w", err)
		}
	}
	result.Proved(proof)

	return nil
}

// storedProof is the proof of an earlier run of the same search; nil where there is none.
func (p *prober) storedProof(answer capacity.Record) (*capacity.ClientProof, error) {
	path := filepath.Join(p.dir, proofDir, proofFile)
	content, err := os.ReadFile(path) // #nosec G304 -- the user's own directory
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // none yet
	}
	if err != nil {
		return nil, fmt.Errorf("client proof: %w", err)
	}
	var proof capacity.ClientProof
	if err := json.Unmarshal(content, &proof); err != nil {
		return nil, fmt.Errorf("client proof: %s: %w", path, err)
	}
	if proof.Probe != answer.N || proof.Rate != answer.Rate {
		return nil, nil //nolint:nilnil // of another answer
	}

	return &proof, nil
}

func (p *prober) runProof(ctx context.Context, answer capacity.Record) (*capacity.ClientProof, error) {
	joined := filepath.Join(p.dir, proofDir)
	if err := os.RemoveAll(joined); err != nil {
		return nil, err //nolint:wrapcheck // names the directory
	}
	began := time.Now()
	req := answer.ProbeRequest
	req.StopEarly = false
	req.Seed = rand.Uint64() // #nosec G404 -- another one each time: a proof may have been cut, and the prefix cache holds its prompts
	parts, err := p.runSegments(ctx, req)
	defer func() {
		for _, dir := range parts {
			_ = os.RemoveAll(dir) // what is in them is in the joined directory
		}
	}()
	if err != nil {
		return nil, err
	}
	if _, err := merge.Merge(parts, joined, merge.Options{Contract: p.contract}); err != nil {
		return nil, err //nolint:wrapcheck // names the directories
	}
	run, judged, err := p.judge(joined)
	if err != nil {
		return nil, err
	}
	came, err := arrivalsOf(run)
	if err == nil {
		err = p.askedFor(run, req, came)
	}
	if err != nil {
		return nil, err
	}
	compared, err := compareDirs(filepath.Join(p.dir, answer.Dir), joined, compare.Options{Force: true})
	if err != nil {
		return nil, err
	}
	if _, err := p.waitForIdle(ctx); err != nil {
		return nil, err
	}
	proof := proofOf(answer, judged.Verdict, compared)
	proof.Seconds = time.Since(began).Seconds()
	for name, v := range map[string]any{comparisonFile: compared, proofFile: proof} {
		content, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if err := results.WriteFile(filepath.Join(joined, name), append(content, '\n')); err != nil {
			return nil, err //nolint:wrapcheck // names the file
		}
	}

	return proof, nil
}

// runSegments runs the probe by several generators at once, and returns their directories.
func (p *prober) runSegments(ctx context.Context, req capacity.ProbeRequest) ([]string, error) {
	sequence := "0"
	for i := 1; i < generators; i++ {
		sequence += "," + fraction(i)
	}
	sequence += ",1"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dirs, errs := make([]string, generators), make([]error, generators)
	var all sync.WaitGroup
	for i := range generators {
		dirs[i] = filepath.Join(p.dir, fmt.Sprintf("%s-generator-%d", proofDir, i+1))
		if err := os.RemoveAll(dirs[i]); err != nil {
			return dirs, err //nolint:wrapcheck // names the directory
		}
	}
	for i := range generators {
		all.Go(func() {
			errs[i] = p.k6(ctx, req, dirs[i], p.steady(req), "--execution-segment", fraction(i)+":"+fraction(i+1),
				"--execution-segment-sequence", sequence)
			if errs[i] != nil {
				cancel() // one alone proves nothing
			}
		})
	}
	all.Wait()

	return dirs, errors.Join(errs...)
}

// fraction is the share of the first i generators.
func fraction(i int) string {
	switch i {
	case 0:
		return "0"
	case generators:
		return "1"
	}

	return strconv.Itoa(i) + "/" + strconv.Itoa(generators)
}

// proofOf reads the comparison: a latency that is lower with more generators is one that a generator had a share in. That
// none is lower follows only where each was found to be the same or higher, on evidence that stands.
func proofOf(answer capacity.Record, status verdict.Status, compared *compare.Report) *capacity.ClientProof {
	proof := &capacity.ClientProof{
		Rate: answer.Rate, Probe: answer.N, Verdict: status, Answer: string(compared.Answer), Dir: proofDir,
	}
	known := 0
	open := status == verdict.Invalid
	for i := range compared.Rows {
		row := &compared.Rows[i]
		switch {
		case !row.Latency() || row.Note == "not measured":
		case row.Answer == compare.Better:
			proof.Lower = append(proof.Lower, row.Metric+" "+row.Statistic)
		case row.Answer == compare.NotEnough:
			open = true
		default:
			known++
		}
	}
	limited := len(proof.Lower) > 0
	if limited || (known > 0 && !open) {
		proof.Limited = &limited
	}

	return proof
}
