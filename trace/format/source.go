package format

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
)

const (
	// maxLine bounds one line. Chat histories reach many megabytes; more than this is not a trace.
	maxLine = 512 << 20
	// sampleLines and sampleBytes bound what is looked at to tell a file's form and units.
	sampleLines = 1000
	sampleBytes = 4 << 20
)

// source gives a file's lines: decompressed, without byte order mark and line ends, and hashed.
type source struct {
	name   string
	br     *bufio.Reader
	digest hash.Hash
	buf    []byte
	line   int // number of the line that next returned last
	sample []string
	taken  int // how many sample lines next has returned again

	gzip, bom, crlf, noFinalNewline bool
}

func newSource(name string, r io.Reader) (*source, error) {
	s := &source{name: name, digest: sha256.New()}
	raw := bufio.NewReaderSize(r, 64<<10)
	// A peek that comes up short is no error here: a short file shows itself when it is read.
	if head, err := raw.Peek(2); err == nil && head[0] == 0x1f && head[1] == 0x8b {
		zr, err := gzip.NewReader(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: not a readable gzip file: %w", name, err)
		}
		s.gzip = true
		s.br = bufio.NewReaderSize(io.TeeReader(zr, s.digest), 1<<20)
	} else {
		s.br = bufio.NewReaderSize(io.TeeReader(raw, s.digest), 1<<20)
	}
	head, err := s.br.Peek(3)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	switch {
	case bytes.HasPrefix(head, []byte{0xef, 0xbb, 0xbf}):
		s.bom = true
		if _, err := s.br.Discard(3); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	case bytes.HasPrefix(head, []byte{0xff, 0xfe}), bytes.HasPrefix(head, []byte{0xfe, 0xff}):
		return nil, fmt.Errorf("%s: the file is in UTF-16: expected UTF-8", name)
	}
	return s, s.fillSample()
}

func (s *source) fillSample() error {
	size := 0
	for len(s.sample) < sampleLines && size < sampleBytes {
		line, err := s.readLine()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.sample = append(s.sample, string(line))
		size += len(line)
	}
	return nil
}

// next returns the next line and its number. The bytes are valid until the next call. The error is
// io.EOF at the end, else it names the file.
func (s *source) next() (line []byte, number int, err error) {
	if s.taken < len(s.sample) {
		line = []byte(s.sample[s.taken])
		s.sample[s.taken] = ""
		s.taken++
		return line, s.taken, nil
	}
	line, err = s.readLine()
	return line, s.line, err
}

func (s *source) readLine() ([]byte, error) {
	s.buf = s.buf[:0]
	for {
		part, err := s.br.ReadSlice('\n')
		if err == nil && len(s.buf) == 0 {
			s.line++
			return s.trimCR(part[:len(part)-1]), nil
		}
		s.buf = append(s.buf, part...)
		if len(s.buf) > maxLine {
			return nil, &LineError{File: s.name, Line: s.line + 1, Reason: fmt.Sprintf("the line is longer than %d MiB", maxLine>>20)}
		}
		switch {
		case err == nil:
			s.line++
			return s.trimCR(s.buf[:len(s.buf)-1]), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			if len(s.buf) == 0 {
				return nil, io.EOF
			}
			s.noFinalNewline = true
			s.line++
			return s.trimCR(s.buf), nil
		default:
			return nil, fmt.Errorf("%s:%d: cannot read on: %w", s.name, s.line+1, err)
		}
	}
}

func (s *source) trimCR(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		s.crlf = true
		return line[:n-1]
	}
	return line
}

func (s *source) sum() string { return hex.EncodeToString(s.digest.Sum(nil)) }
