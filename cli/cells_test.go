package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCells(t *testing.T) {
	t.Parallel()
	got, err := cells([]string{"chat", "rag:MIX=short=0.6@200/60,typical=0.4,URL=http://a/?x=1,y"}, []string{"poisson", "0.5"})
	require.NoError(t, err)
	rag := map[string]string{"LLM_WORKLOAD": "rag", "MIX": "short=0.6@200/60,typical=0.4", "URL": "http://a/?x=1,y"}
	with := func(k string) map[string]string {
		return map[string]string{"LLM_WORKLOAD": rag["LLM_WORKLOAD"], "MIX": rag["MIX"], "URL": rag["URL"], "LLM_BURSTINESS": k}
	}
	require.Equal(t, []cell{
		{"chat", "poisson", map[string]string{"LLM_WORKLOAD": "chat", "LLM_BURSTINESS": "1"}},
		{"chat", "0.5", map[string]string{"LLM_WORKLOAD": "chat", "LLM_BURSTINESS": "0.5"}},
		{"rag", "poisson", with("1")},
		{"rag", "0.5", with("0.5")},
	}, got)
	require.Equal(t, "rag-0.5", got[3].name())

	got, err = cells(nil, nil)
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, "the search", got[0].name())

	for _, c := range []struct {
		workloads, arrivals []string
		says                string
	}{
		{[]string{".."}, nil, "names a directory"},
		{[]string{"."}, nil, "names a directory"},
		{[]string{"a/b"}, nil, "names a directory"},
		{[]string{""}, nil, "names a directory"},
		{[]string{"a", "a"}, nil, "there twice"},
		{[]string{"a-1e", "a"}, []string{"1", "1e-1"}, "there twice"},
		{[]string{"a-1", "a"}, []string{"2", "1-2"}, "--arrival"},
		{nil, []string{"poisson", "poisson"}, "there twice"},
		{nil, []string{"0"}, "above 0"},
		{nil, []string{"Inf"}, "above 0"},
		{nil, []string{"-1"}, "above 0"},
		{[]string{"a:b"}, nil, "expected NAME=VALUE"},
		{[]string{"a:=b"}, nil, "expected NAME=VALUE"},
		{[]string{"a:LLM_STEADY=2s"}, nil, "hands to its probes"},
		{[]string{"a:LLM_BURSTINESS=2"}, []string{"poisson"}, "is what --arrival sets"},
	} {
		_, err := cells(c.workloads, c.arrivals)
		require.ErrorContains(t, err, c.says, "%v %v", c.workloads, c.arrivals)
	}
}

func TestShares(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"5%": 0.05, "0.05": 0.05, "12.5%": 0.125, "-50%": -0.5} {
		got, err := parseShare(text)
		require.NoError(t, err, text)
		require.InDelta(t, want, got, 1e-12, text)
	}
	for _, text := range []string{"", "%", "5x%", "NaN", "Inf", "5%%"} {
		_, err := parseShare(text)
		require.Error(t, err, text)
	}
}
