package results

import "fmt"

// Counts is the ledger of arrivals. Every arrival is offered; what became of each is counted exactly once.
// Retries are not arrivals and are counted apart.
type Counts struct {
	Offered   int64 `json:"offered"`
	Started   int64 `json:"started"`
	Dropped   int64 `json:"dropped"`
	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"`
	Cancelled int64 `json:"cancelled"`
	InFlight  int64 `json:"in_flight"`
	// Retries are further attempts at requests that are counted above by their first attempt.
	Retries int64 `json:"retries,omitempty"`
}

// Add enters one arrival, or one retry of it.
func (c *Counts) Add(o Outcome, attempt int) {
	if attempt > 1 {
		c.Retries++
		return
	}
	c.Offered++
	if o == Dropped {
		c.Dropped++
		return
	}
	c.Started++
	switch o {
	case OK:
		c.Completed++
	case Failed:
		c.Failed++
	case Cancelled:
		c.Cancelled++
	case InFlight:
		c.InFlight++
	}
}

// Plus returns the sum of two ledgers.
func (c Counts) Plus(d Counts) Counts {
	return Counts{
		Offered: c.Offered + d.Offered, Started: c.Started + d.Started, Dropped: c.Dropped + d.Dropped,
		Completed: c.Completed + d.Completed, Failed: c.Failed + d.Failed, Cancelled: c.Cancelled + d.Cancelled,
		InFlight: c.InFlight + d.InFlight, Retries: c.Retries + d.Retries,
	}
}

// Check returns an error unless the ledger balances: offered = started + dropped, and
// started = completed + failed + cancelled + in flight.
func (c Counts) Check() error {
	if c.Offered != c.Started+c.Dropped {
		return fmt.Errorf("ledger: offered %d is not started %d + dropped %d", c.Offered, c.Started, c.Dropped)
	}
	if c.Started != c.Completed+c.Failed+c.Cancelled+c.InFlight {
		return fmt.Errorf("ledger: started %d is not completed %d + failed %d + cancelled %d + in flight %d",
			c.Started, c.Completed, c.Failed, c.Cancelled, c.InFlight)
	}
	return nil
}
