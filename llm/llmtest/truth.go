package llmtest

import (
	"slices"
	"sync"
)

// ChunkTruth is one event as the server wrote it.
type ChunkTruth struct {
	// SentNS is the wall-clock time in nanoseconds since 1970, taken right before the write.
	SentNS int64 `json:"sent_ns"`
	// Kind is role, text, reasoning, tool_call, finish, usage or error; open and close are events that only frame an answer
	// of the responses or messages API.
	Kind string `json:"kind"`
	// Tokens is how many tokens the event carries.
	Tokens int `json:"tokens"`
}

// Truth is what the server knows of one streamed answer.
type Truth struct {
	ID           string `json:"id"`
	ReceivedNS   int64  `json:"received_ns"`
	PromptTokens int    `json:"prompt_tokens"`
	CachedTokens int    `json:"cached_tokens"`
	// OutputTokens is how many tokens were written, not how many the engine made.
	OutputTokens int          `json:"output_tokens"`
	Chunks       []ChunkTruth `json:"chunks"`
	// FinishReason is empty where none was sent.
	FinishReason string `json:"finish_reason"`
	// Ended tells that the server is done with the answer.
	Ended bool `json:"ended"`
}

// truthStore keeps the last so many truths.
type truthStore struct {
	mu    sync.Mutex
	limit int
	order []string
	byID  map[string]*Truth
}

func newTruthStore(limit int) *truthStore {
	return &truthStore{limit: limit, byID: make(map[string]*Truth)}
}

func (t *truthStore) begin(truth Truth) {
	if t.limit == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == t.limit {
		delete(t.byID, t.order[0])
		t.order = t.order[1:]
	}
	t.order = append(t.order, truth.ID)
	t.byID[truth.ID] = &truth
}

// update changes the truth of a request that is still kept.
func (t *truthStore) update(id string, change func(*Truth)) {
	if t.limit == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if truth := t.byID[id]; truth != nil {
		change(truth)
	}
}

func (t *truthStore) get(id string) (Truth, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	truth := t.byID[id]
	if truth == nil {
		return Truth{}, false
	}
	out := *truth
	out.Chunks = slices.Clone(truth.Chunks)
	return out, true
}

// ids are the requests whose truth is kept, oldest first.
func (t *truthStore) ids() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.order)
}

// TruthIDs are the ids of the streamed answers whose truth is kept, oldest first.
func (s *Server) TruthIDs() []string { return s.truths.ids() }
