package llmtest

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http"
	"time"
)

// Embeddings have DefaultDimensions numbers unless the request asks for another number of them, up to maxDimensions; a
// request holds up to maxInputs inputs, as with OpenAI.
const (
	DefaultDimensions = 256
	maxDimensions     = 4096
	maxInputs         = 2048
)

type embeddingsRequest struct {
	Model          string          `json:"model"`
	Input          json.RawMessage `json:"input"`
	Dimensions     *int            `json:"dimensions"`
	EncodingFormat string          `json:"encoding_format"`
	SimFault       json.RawMessage `json:"sim_fault"`
}

// serveEmbeddings answers when the engine has computed the prefill of every input. The vectors are a function of the input
// and mean nothing.
func (s *Server) serveEmbeddings(w http.ResponseWriter, r *http.Request) {
	var req embeddingsRequest
	if err := readJSON(w, r, &req); err != nil {
		err.write(w, completionsAPI)
		return
	}
	number := s.number.Add(1)
	fault, ok := s.strikeFirst(w, r, completionsAPI, req.SimFault, number)
	if !ok {
		return
	}
	apiErr := s.checkModel(req.Model)
	var inputs [][]uint32
	if apiErr == nil {
		inputs, apiErr = req.inputs()
	}
	if apiErr == nil {
		var left bool
		if left, apiErr = s.prefill(r, inputs); left {
			return
		}
	}
	if apiErr == nil {
		j := &job{id: s.newID("embd-", number), model: req.Model, fault: fault}
		if j.model == "" {
			j.model = s.cfg.Model
		}
		apiErr = newEventWriter(w, j).whole(w, req.answer(j, inputs))
	}
	if apiErr != nil {
		apiErr.write(w, completionsAPI)
	}
}

// inputs reads a text, a list of token ids, or a list of either.
func (req embeddingsRequest) inputs() ([][]uint32, *apiError) {
	switch {
	case req.EncodingFormat != "" && req.EncodingFormat != "float" && req.EncodingFormat != "base64":
		return nil, badRequest("encoding_format is %q, expected \"float\" or \"base64\"", req.EncodingFormat)
	case req.Dimensions != nil && (*req.Dimensions < 1 || *req.Dimensions > maxDimensions):
		return nil, badRequest("dimensions is %d, expected 1 to %d", *req.Dimensions, maxDimensions)
	}
	var list []json.RawMessage
	if json.Unmarshal(req.Input, &list) != nil || len(list) == 0 || isNumber(list[0]) {
		list = []json.RawMessage{req.Input} // one input
	}
	if len(list) > maxInputs {
		return nil, badRequest("input holds %d inputs, expected at most %d", len(list), maxInputs)
	}
	inputs := make([][]uint32, len(list))
	for i, raw := range list {
		var text string
		switch {
		case json.Unmarshal(raw, &text) == nil && text != "":
			inputs[i] = Tokenize(nil, text)
		case json.Unmarshal(raw, &inputs[i]) == nil && len(inputs[i]) > 0:
		default:
			return nil, badRequest("input %d: expected a text or a list of token ids that is not empty", i)
		}
	}
	return inputs, nil
}

func isNumber(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] >= '0' && raw[0] <= '9' }

// prefill has the engine read every input, side by side. It says whether client or server left meanwhile.
func (s *Server) prefill(r *http.Request, inputs [][]uint32) (left bool, apiErr *apiError) {
	if s.cfg.FixedGap > 0 {
		return !s.sleep(r, s.cfg.FixedTTFT), nil
	}
	deliveries := make([]*delivery, 0, len(inputs))
	tags := make([]int64, 0, len(inputs))
	defer func() {
		for i, tag := range tags {
			if !deliveries[i].finished.Load() {
				s.loop.cancel(tag)
			}
		}
	}()
	for _, input := range inputs {
		d := newDelivery()
		tag, err := s.loop.submit(Request{PromptTokens: len(input), MaxTokens: 1, Pooling: true}, d, "stop")
		if err != nil {
			return false, s.refusal(err)
		}
		deliveries, tags = append(deliveries, d), append(tags, tag)
	}
	for _, d := range deliveries {
		for !d.finished.Load() {
			select {
			case <-d.poke:
			case <-r.Context().Done():
				return true, nil
			case <-s.closing:
				return false, s.refusal(errClosed)
			}
		}
	}
	return false, nil
}

func (req embeddingsRequest) answer(j *job, inputs [][]uint32) map[string]any {
	dimensions := DefaultDimensions
	if req.Dimensions != nil {
		dimensions = *req.Dimensions
	}
	data := make([]any, len(inputs))
	total := 0
	for i, input := range inputs {
		total += len(input)
		var vector any = embedding(input, dimensions)
		if req.EncodingFormat == "base64" {
			vector = base64Floats(embedding(input, dimensions))
		}
		data[i] = map[string]any{"object": "embedding", "index": i, "embedding": vector}
	}
	answer := map[string]any{"id": j.id, "object": "list", "created": time.Now().Unix(), "model": j.model, "data": data}
	if !j.fault.NoUsage {
		answer["usage"] = map[string]any{"prompt_tokens": total, "total_tokens": total}
	}
	return answer
}

// embedding is a vector of length 1 that depends on the input alone.
func embedding(input []uint32, dimensions int) []float32 {
	seed := uint64(len(input))
	for _, t := range input {
		seed = mix64(seed + uint64(t) + 1)
	}
	random := rand.New(rand.NewPCG(seed, 0xe3b)) // #nosec G404 -- a simulation must repeat
	vector := make([]float32, dimensions)
	length := 0.0
	for i := range vector {
		v := random.NormFloat64()
		vector[i] = float32(v)
		length += v * v
	}
	for i := range vector {
		vector[i] /= float32(math.Sqrt(length))
	}
	return vector
}

// base64Floats is OpenAI's other form of a vector: its numbers of 32 bits, little-endian.
func base64Floats(vector []float32) string {
	raw := make([]byte, 0, 4*len(vector))
	for _, v := range vector {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return base64.StdEncoding.EncodeToString(raw)
}
