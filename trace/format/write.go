package format

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Write writes a trace as this project's JSONL: Mooncake's keys (timestamp in ms, with a fraction where
// there is one), AIPerf's session_id, delay, text_input, messages and payload, and class, turn and elapsed
// (ms) where a row has them. The first row also says time_unit and block_size, so that Read has nothing
// to guess. Readers of Mooncake's form that skip unknown keys read it too.
func Write(w io.Writer, t *Trace) error {
	if t.HasHashIDs() && t.BlockSize <= 0 {
		return errors.New("a trace with hash ids needs a block size to be written")
	}
	out := bufio.NewWriterSize(w, 1<<16)
	var line []byte
	for i := range t.Rows {
		var err error
		if line, err = appendRow(line[:0], t, i); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		if _, err = out.Write(line); err != nil {
			return fmt.Errorf("write trace: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

func appendRow(b []byte, t *Trace, i int) ([]byte, error) {
	r := &t.Rows[i]
	if r.Due < 0 {
		return b, fmt.Errorf("due at %s: a row cannot be due before time zero", r.Due)
	}
	b = append(b, `{"timestamp":`...)
	b = appendMillis(b, r.Due)
	if r.InputTokens != Unknown {
		b = append(b, `,"input_length":`...)
		b = strconv.AppendInt(b, int64(r.InputTokens), 10)
	}
	if r.OutputTokens != Unknown {
		b = append(b, `,"output_length":`...)
		b = strconv.AppendInt(b, int64(r.OutputTokens), 10)
	}
	if len(r.HashIDs) > 0 {
		b = append(b, `,"hash_ids":[`...)
		for j, id := range r.HashIDs {
			if j > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(b, id, 10)
		}
		b = append(b, ']')
	}
	var err error
	if r.Class != "" {
		if b, err = appendString(b, "class", r.Class); err != nil {
			return b, err
		}
	}
	if r.Extra != nil {
		if b, err = appendExtra(b, r.Extra); err != nil {
			return b, err
		}
	}
	if i == 0 {
		b = append(b, `,"time_unit":"ms"`...)
		if t.BlockSize > 0 {
			b = append(b, `,"block_size":`...)
			b = strconv.AppendInt(b, int64(t.BlockSize), 10)
		}
	}
	return append(b, "}\n"...), nil
}

func appendExtra(b []byte, e *Extra) ([]byte, error) {
	var err error
	if e.Session != "" {
		if b, err = appendString(b, "session_id", e.Session); err != nil {
			return b, err
		}
	}
	if e.Turn > 0 {
		b = append(b, `,"turn":`...)
		b = strconv.AppendInt(b, int64(e.Turn), 10)
	}
	if e.Delay > 0 {
		b = append(b, `,"delay":`...)
		b = appendMillis(b, e.Delay)
	}
	if e.Elapsed > 0 {
		b = append(b, `,"elapsed":`...)
		b = appendMillis(b, e.Elapsed)
	}
	if e.Text != "" {
		if b, err = appendString(b, "text_input", e.Text); err != nil {
			return b, err
		}
	}
	for _, raw := range []struct {
		key   string
		value json.RawMessage
	}{{"messages", e.Messages}, {"payload", e.Payload}} {
		if raw.value == nil {
			continue
		}
		var compact bytes.Buffer // a line break in the raw JSON would end the row
		if err := json.Compact(&compact, raw.value); err != nil {
			return b, fmt.Errorf("%s: %w", raw.key, err)
		}
		b = append(b, `,"`...)
		b = append(b, raw.key...)
		b = append(b, `":`...)
		b = append(b, compact.Bytes()...)
	}
	return b, nil
}

func appendString(b []byte, key, value string) ([]byte, error) {
	quoted, err := json.Marshal(value)
	if err != nil {
		return b, fmt.Errorf("%s: %w", key, err)
	}
	b = append(b, `,"`...)
	b = append(b, key...)
	b = append(b, `":`...)
	return append(b, quoted...), nil
}

// appendMillis writes a duration in milliseconds without loss: 1500000 ns is 1.5.
func appendMillis(b []byte, d time.Duration) []byte {
	b = strconv.AppendInt(b, int64(d/time.Millisecond), 10)
	rest := int64(d % time.Millisecond)
	if rest == 0 {
		return b
	}
	fraction := strconv.AppendInt(nil, 1_000_000+rest, 10)[1:]
	b = append(b, '.')
	return append(b, bytes.TrimRight(fraction, "0")...)
}

// ErrNotCSV is wrapped by the error for a trace that CSV does not hold.
var ErrNotCSV = errors.New("which CSV does not hold")

// WriteCSV writes a trace as CSV with the header timestamp_ms,input_length,output_length,class. A trace that
// has more than that is refused with ErrNotCSV; LengthsOnly drops it.
func WriteCSV(w io.Writer, t *Trace) error {
	out := csv.NewWriter(w)
	if err := out.Write([]string{"timestamp_ms", "input_length", "output_length", "class"}); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	for i := range t.Rows {
		r := &t.Rows[i]
		if len(r.HashIDs) > 0 || r.Extra != nil {
			return fmt.Errorf("row %d has hash ids, a session, an elapsed time or a prompt, %w", i, ErrNotCSV)
		}
		if r.InputTokens < 0 || r.OutputTokens < 0 || r.Due < 0 {
			return fmt.Errorf("row %d has an unknown length or a negative due time, %w", i, ErrNotCSV)
		}
		if strings.ContainsAny(r.Class, "\r\n") {
			return fmt.Errorf("row %d: class %q has a line break, %w", i, r.Class, ErrNotCSV)
		}
		record := []string{
			string(appendMillis(nil, r.Due)), strconv.Itoa(int(r.InputTokens)), strconv.Itoa(int(r.OutputTokens)), r.Class,
		}
		if err := out.Write(record); err != nil {
			return fmt.Errorf("write trace: %w", err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}
