package verdict

import (
	"math"
	"slices"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// interToken judges the gaps between chunks. They are in histograms only, and those of one answer depend on each other:
// one answer counts as one observation of the share of gaps over the limit, and a failed request as one with all its
// gaps over it.
func (j *judge) interToken(c contract.Criterion, out *Criterion) error {
	all, err := j.run.Histograms(results.MetricITL)
	if err != nil {
		return err
	}
	merged, err := results.MergeHistograms(all, func(key results.HistogramKey) bool {
		return key.Phase == string(c.Phase) && (c.Class == "" || key.Class == c.Class) && j.inStep(key.Step)
	})
	if err != nil {
		return err
	}
	o, s := j.answers(c)
	if merged == nil || merged.Count() == 0 {
		out.note("no gap between chunks was recorded")
		if o.failed > 0 && !j.anyOK(c) { // nothing but failures: these are over every limit
			out.settle(s, TestShare(s, j.tolerated(c), j.confidence))
			o.explain(out)
		}
		return nil
	}
	limit, _ := c.Limit.Value()
	gapsOver := merged.Above(limit)
	share := float64(gapsOver) / float64(merged.Count())
	overOK := share * float64(s.N-s.Over)
	whole := math.Floor(overOK)
	s.Over += int64(whole)
	if overOK > whole { // a part of an observation is over the limit: a pass counts it as one, a fail as none
		s.Undecided++
		s.N--
	}
	switch c.Stat.Kind {
	case contract.StatMean:
		out.note("the mean of all gaps has no interval: they depend on each other")
		out.exact(c, merged.Mean().Value)
		out.N = merged.Count()
	case contract.StatMin:
		out.exact(c, merged.Quantile(0).Value)
		out.N = merged.Count()
	case contract.StatMax:
		if gapsOver > 0 && s.Over == 0 {
			s.Over, s.Undecided = 1, s.Undecided-1
			s.N++
		}
		out.settle(s, TestShare(s, 0, j.confidence))
		out.Measured = pointer(merged.Max().Value)
	default:
		out.settle(s, TestShare(s, j.tolerated(c), j.confidence))
		j.gapQuantile(c, merged, o, out)
	}
	out.note("%d gaps, %d of them over the limit; an answer counts as one observation", merged.Count(), gapsOver)
	o.explain(out)
	return nil
}

// answers counts the answers that have gaps, and the failed requests as over the limit.
func (j *judge) answers(c contract.Criterion) (observations, Sample) {
	over := func(v float64) bool {
		met, known := c.Met(v)
		return known && !met
	}
	var (
		o observations
		s Sample
	)
	t := j.table
	for _, i := range j.rows(string(c.Phase), c.Class) {
		if t.tokenless[i] {
			continue
		}
		value := t.values[columnITL][i]
		switch {
		case t.outcome[i] == results.Dropped:
			s.Undecided++
		case t.outcome[i] == results.Failed:
			s.N++
			s.Over++
			o.failed++
			o.values = append(o.values, math.Inf(1))
		case !math.IsNaN(value):
			s.N++
			o.values = append(o.values, value)
		case t.outcome[i] == results.InFlight:
			s.Undecided++
		}
	}
	s.Undecided += j.unseenOf(string(c.Phase), c.Class)
	s.Inflation = inflation(o.values, over, false)
	return o, s
}

// anyOK says that an answer came to its end.
func (j *judge) anyOK(c contract.Criterion) bool {
	return slices.ContainsFunc(j.rows(string(c.Phase), c.Class), func(i int32) bool { return j.table.outcome[i] == results.OK })
}

// gapQuantile is the quantile of all gaps if each failed request had as many, all infinite.
func (j *judge) gapQuantile(c contract.Criterion, merged *results.Histogram, o observations, out *Criterion) {
	served := 1.0
	if len(o.values) > 0 {
		served = 1 - float64(o.failed)/float64(len(o.values))
	}
	if q := c.Stat.Quantile; q <= served {
		out.Measured = pointer(merged.Quantile(q / served).Value)
		return
	}
	out.note("the quantile falls among the requests that failed")
}
