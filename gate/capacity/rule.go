package capacity

// StoppedEarlyRule is the rule by which a probe says in its run.json that it ended because it had certainly failed.
const StoppedEarlyRule = "capacity.early"
