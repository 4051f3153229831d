package arrival

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestValidateNamesTheField(t *testing.T) {
	second := time.Second
	for _, c := range []struct {
		config Config
		says   string
	}{
		{Config{Rate: -1, Burstiness: 1, Count: 1}, "arrival: rate: expected 0 to 1e+09 arrivals per second, got -1"},
		{Config{Rate: math.NaN(), Burstiness: 1, Count: 1}, "rate: expected 0 to 1e+09 arrivals per second, got NaN"},
		{Config{Rate: math.Inf(1), Burstiness: 1, Count: 1}, "rate: expected 0 to 1e+09 arrivals per second, got +Inf"},
		{Config{Burstiness: 1, Count: 1}, "rate: expected above zero where there are no stages, got 0"},
		{Config{Rate: 1, Count: 1}, "burstiness: expected at least 0.01 (1 is Poisson, +Inf constant), got 0"},
		{Config{Rate: 1, Burstiness: math.NaN(), Count: 1}, "got NaN"},
		{Config{Rate: 1, Burstiness: -2, Count: 1}, "burstiness: expected at least 0.01 (1 is Poisson, +Inf constant), got -2"},
		{Config{Rate: 1, Burstiness: 1}, "count or duration: expected one of them where there are no stages, got neither"},
		{
			Config{Rate: 1, Burstiness: 1, Count: 2, Duration: second},
			"count and duration: expected one of them, got count 2 and duration 1s",
		},
		{Config{Rate: 1, Burstiness: 1, Duration: -second}, "duration: expected 0 to 2501h59m59.254740992s, got -1s"},
		{Config{Rate: 1, Burstiness: 1, Duration: MaxDuration + 1}, "duration: expected 0 to 2501h59m59.254740992s, got 2501h"},
		{Config{Rate: 1, Burstiness: 1, Count: -3}, "count: expected 0 to 1000000000, got -3"},
		{Config{Rate: 1, Burstiness: 1, Count: MaxArrivals + 1}, "count: expected 0 to 1000000000, got 1000000001"},
		{
			Config{Rate: 1e-6, Burstiness: 1, Count: 10},
			"count: expected at most 9, the arrivals that the rate gives within 2501h59m59.254740992s, got 10",
		},
		{
			Config{Rate: 1e6, Burstiness: 1, Duration: time.Hour},
			"rate: expected at most 1000000000 arrivals within 1h0m0s, got 3.6e+09",
		},
		{Config{Stages: []Stage{{0, 5}}, Burstiness: 1}, "stages: expected a total duration above zero, got 0s"},
		{Config{Stages: []Stage{{second, 5}, {-1, 5}}, Burstiness: 1}, "stages[1].duration: expected zero or more, got -1ns"},
		{Config{Stages: []Stage{{second, -5}}, Burstiness: 1}, "stages[0].target: expected 0 to 1e+09 arrivals per second, got -5"},
		{
			Config{Stages: []Stage{{MaxDuration, 5}, {second, 5}}, Burstiness: 1},
			"stages[1].duration: expected the stages to last at most 2501h59m59.254740992s together, got 1s",
		},
		{
			Config{Stages: []Stage{{second, 0}, {second, 0}}, Burstiness: 1},
			"stages: expected a rate above zero somewhere within 2s, got zero throughout",
		},
		{
			Config{Stages: []Stage{{second, 0}, {second, 9}}, Duration: second, Burstiness: 1},
			"stages: expected a rate above zero somewhere within 1s, got zero throughout",
		},
		{
			Config{Stages: []Stage{{second, 10}}, Count: 6, Burstiness: 1},
			"count: expected at most 5, the arrivals that the rate gives within 1s, got 6",
		},
		{
			Config{Stages: []Stage{{second, 10}}, Duration: 2 * second, Burstiness: 1},
			"duration: expected at most the stages' 1s, got 2s",
		},
	} {
		require.ErrorContains(t, c.config.Validate(), c.says)
		_, err := Schedule(c.config)
		require.ErrorContains(t, err, c.says)
		_, err = Stream(c.config)
		require.ErrorContains(t, err, c.says)
	}
}

func TestValidateReportsEverything(t *testing.T) {
	err := Config{Rate: -1, Count: -1, Duration: -1}.Validate()
	for _, field := range []string{"rate", "burstiness", "count", "duration"} {
		require.ErrorContains(t, err, "arrival: "+field+": ")
	}
}

func TestValidateAccepts(t *testing.T) {
	for _, c := range []Config{
		{Rate: 1, Burstiness: 1, Count: 1},
		{Rate: 1, Burstiness: MinBurstiness, Duration: 1},
		{Rate: MaxRate, Burstiness: math.Inf(1), Duration: time.Second},
		{Rate: 0, Burstiness: 1e9, Stages: []Stage{{time.Second, 1}}},
		{Rate: 5, Burstiness: 1, Stages: []Stage{{time.Second, 0}}, Count: 2},
		{Rate: 5, Burstiness: 1, Stages: []Stage{{time.Second, 0}}, Duration: time.Second},
	} {
		require.NoError(t, c.Validate())
	}
}

func TestLengthIsWhatTheRateTakes(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   time.Duration
	}{
		{Config{Rate: 5, Duration: time.Minute, Burstiness: 1}, time.Minute},
		{Config{Rate: 5, Count: 4, Burstiness: 0.1}, 800 * time.Millisecond},
		{Config{Stages: []Stage{{Duration: 10 * time.Second, Target: 10}}, Burstiness: 1}, 10 * time.Second},
		{Config{Stages: []Stage{{Duration: 10 * time.Second, Target: 10}}, Count: 8, Burstiness: 1}, 4 * time.Second},
		{Config{Rate: 5, Count: 4, Burstiness: 1, FreeCount: true}, 0},
		{Config{Rate: 5, Duration: time.Minute, Burstiness: 1, FreeCount: true}, time.Minute},
	} {
		got, err := c.config.Length()
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	_, err := Config{}.Length()
	require.Error(t, err)
}
