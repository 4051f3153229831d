package format

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
)

// BenchmarkRead loads a million rows of each shape and reports what they take in memory.
//
//	go test -run '^$' -bench Read -benchtime 1x ./trace/format
func BenchmarkRead(b *testing.B) {
	const rows = 1_000_000
	for _, shape := range []struct {
		name string
		file func() []byte
	}{
		{"mooncake", func() []byte { return mooncakeFile(rows) }},
		{"burstgpt", func() []byte { return burstGPTFile(rows) }},
	} {
		b.Run(shape.name, func(b *testing.B) {
			file := shape.file()
			b.SetBytes(int64(len(file)))
			var trace *Trace
			before := heap()
			b.ResetTimer()
			for b.Loop() {
				var err error
				if trace, err = Read("bench", bytes.NewReader(file), Options{}); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(heap()-before)/float64(len(trace.Rows)), "B/row")
			runtime.KeepAlive(trace)
			runtime.KeepAlive(file)
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // a heap of less than 2^63 bytes
}

// mooncakeFile has 24 blocks a row on average, as the conversation trace has.
func mooncakeFile(rows int) []byte {
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // test data
	var out []byte
	id := uint64(0)
	for i := range rows {
		input := 1 + rng.IntN(24*2*512)
		out = fmt.Appendf(out, `{"timestamp": %d, "input_length": %d, "output_length": %d, "hash_ids": [0`, i*3, input, 1+rng.IntN(500))
		for range blocks(int32(input), 512) - 1 { //nolint:gosec // small
			id++
			out = append(out, ", "...)
			out = strconv.AppendUint(out, id%10_000_000, 10)
		}
		out = append(out, "]}\n"...)
	}
	return out
}

func burstGPTFile(rows int) []byte {
	out := []byte("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n")
	for i := range rows {
		out = fmt.Appendf(out, "%d,ChatGPT,%d,%d,%d,Conversation log\n", i/2, 1+i%1000, 1+i%77, 2+i%1000+i%77)
	}
	return out
}

func BenchmarkSummarize(b *testing.B) {
	trace, err := Read("bench", bytes.NewReader(mooncakeFile(200_000)), Options{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		Summarize(trace)
	}
}
