package report

import (
	"encoding/xml"
	"fmt"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// The elements of a JUnit report, as CI systems read it (https://github.com/testmoapp/junitxml).
type (
	junitSuites struct {
		XMLName xml.Name `xml:"testsuites"`
		Name    string   `xml:"name,attr"`
		junitTotals
		Suites []junitSuite `xml:"testsuite"`
	}
	junitTotals struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Skipped  int `xml:"skipped,attr"`
	}
	junitSuite struct {
		Name      string `xml:"name,attr"`
		Timestamp string `xml:"timestamp,attr,omitempty"`
		junitTotals
		Properties *junitProperties `xml:"properties,omitempty"`
		Cases      []junitCase      `xml:"testcase"`
		Out        string           `xml:"system-out,omitempty"`
	}
	junitProperties struct {
		Properties []junitProperty `xml:"property"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitProblem `xml:"failure"`
		Error   *junitProblem `xml:"error"`
		Skipped *junitProblem `xml:"skipped"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitProblem struct {
		Type    string `xml:"type,attr,omitempty"`
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit is the verdict as JUnit XML with one test case per criterion, and one per rate of a staircase. FAIL is a failure;
// INCONCLUSIVE and INVALID are errors, since a gate that could not decide must not look green; a default that was not measured
// is skipped. A verdict that no case shows has one of its own.
func JUnit(r *verdict.Result) ([]byte, error) {
	suite := junitSuite{Name: "SLO contract", Properties: &junitProperties{Properties: []junitProperty{
		{"verdict", string(r.Verdict)},
		{"confidence", digits(r.Confidence)},
		{"arrivals", countsLine(r.Counts, r.DroppedBy)},
	}}}
	if !r.Started.IsZero() {
		suite.Timestamp = r.Started.UTC().Format("2006-01-02T15:04:05")
	}
	for _, label := range r.Labels {
		suite.Properties.Properties = append(suite.Properties.Properties, junitProperty{"label", label})
	}
	for i := range r.Criteria {
		suite.Cases = append(suite.Cases, suite.add(&r.Criteria[i]))
	}
	for i := range r.Steps {
		suite.Cases = append(suite.Cases, suite.addStep(&r.Steps[i]))
	}
	suite.addWhole(r)
	suite.Out = strings.Join(r.Warnings, "\n")
	content, err := xml.MarshalIndent(junitSuites{
		Name: "LLM capacity gate", junitTotals: suite.junitTotals, Suites: []junitSuite{suite},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("report: junit: %w", err)
	}
	return append([]byte(xml.Header), append(content, '\n')...), nil
}

// add makes the test case of a criterion and counts it.
func (s *junitSuite) add(c *verdict.Criterion) junitCase {
	test := junitCase{Class: c.Section, Name: strings.TrimSpace(c.Name + " " + c.Limit)}
	message := "measured " + measured(c) + "; " + evidence(c)
	s.Tests++
	switch {
	case c.Ignored:
		s.Skipped++
		test.Skipped = &junitProblem{Message: notCounted(c)}
	case c.Verdict == verdict.Pass:
		test.Out = message
	case c.Verdict == verdict.Fail:
		s.Failures++
		test.Failure = &junitProblem{Type: string(c.Verdict), Message: message, Text: c.Note}
	default:
		s.Errors++
		test.Error = &junitProblem{Type: string(c.Verdict), Message: message, Text: c.Note}
	}
	return test
}

// notCounted says why a criterion does not count.
func notCounted(c *verdict.Criterion) string {
	if c.Section != string(contract.SectionClientHeadroom) {
		return "nothing to decide at this step"
	}
	return "it was not measured"
}

// addWhole adds a test case for a verdict that none of the others shows: a run that was stopped has not passed, though each of
// its criteria may have.
func (s *junitSuite) addWhole(r *verdict.Result) {
	if r.Verdict == verdict.Pass || s.Failures+s.Errors > 0 {
		return
	}
	message := "the run did not come to its end"
	if len(r.Warnings) > 0 {
		message = r.Warnings[0]
	}
	s.Tests++
	s.Errors++
	s.Cases = append(s.Cases, junitCase{Class: "run", Name: "the run as a whole", Error: &junitProblem{Type: string(r.Verdict), Message: message}})
}

// addStep makes the test case of a step and counts it.
func (s *junitSuite) addStep(step *verdict.Step) junitCase {
	test := junitCase{Class: "step", Name: "step " + step.Name}
	message := "offered " + stepRate(step)
	if reason := stepReason(step); reason != "" {
		message += "; " + reason
	}
	s.Tests++
	switch step.Verdict {
	case verdict.Pass:
		test.Out = message
	case verdict.Fail:
		s.Failures++
		test.Failure = &junitProblem{Type: string(step.Verdict), Message: message}
	default:
		s.Errors++
		test.Error = &junitProblem{Type: string(step.Verdict), Message: message}
	}
	return test
}
