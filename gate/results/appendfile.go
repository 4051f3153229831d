package results

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// appendFile collects whole lines and appends them to a file. After the first failure it keeps the file as it is
// and returns the same error for ever: a line that comes after a lost one would hide the loss.
type appendFile struct {
	path string
	file *os.File
	// size is the length of the file that is known to hold whole lines.
	size int64
	buf  []byte
	err  error
	// written adds up what is in the file, for run.json.
	written *tally
}

// bufferLimit is the number of buffered bytes at which a file is written before its owner asks for it: about
// 2,500 requests, so that memory stays bounded at any rate.
const bufferLimit = 1 << 20

const fileMode = 0o644 // evidence is read by others: a CI job that uploads it, a job that merges it

func createAppendFile(path string) (*appendFile, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode) // #nosec G302 G304 -- see fileMode
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	return &appendFile{path: path, file: file, written: newTally()}, nil
}

// flush writes what is buffered.
func (a *appendFile) flush() error {
	if a.err != nil {
		a.buf = nil
		return a.err
	}
	if len(a.buf) == 0 {
		return nil
	}
	_, err := a.file.WriteAt(a.buf, a.size)
	if err == nil {
		a.size += int64(len(a.buf))
		a.written.add(a.buf, int64(bytes.Count(a.buf, []byte{'\n'})))
		a.buf = a.buf[:0]
		return nil
	}
	a.err = fmt.Errorf("results: cannot write %s: %w; what was measured from here on is lost", a.path, cause(err))
	a.keepWholeLines()
	a.buf = nil
	return a.err
}

// keepWholeLines is called after a write failed, which may have left a part of the buffer in the file. It writes the
// lines one by one while they fit, and cuts off what follows the last one.
func (a *appendFile) keepWholeLines() {
	for line := range bytes.Lines(a.buf) {
		if _, err := a.file.WriteAt(line, a.size); err != nil {
			break
		}
		a.size += int64(len(line))
		a.written.add(line, 1)
	}
	if err := a.file.Truncate(a.size); err != nil {
		a.err = fmt.Errorf("%w (and its last line may be torn: %w)", a.err, cause(err))
	}
}

// committed is called after a line was appended to buf.
func (a *appendFile) committed() error {
	if a.err != nil {
		a.buf = nil
		return a.err
	}
	if len(a.buf) >= bufferLimit {
		return a.flush()
	}
	return nil
}

// inPlace is false once the file is known not to be the one under its name any more.
func (a *appendFile) inPlace() bool {
	there, err := os.Stat(a.path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	own, err := a.file.Stat()
	return err != nil || os.SameFile(own, there)
}

func (a *appendFile) close() error {
	err := a.flush()
	if closeErr := a.file.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("results: cannot close %s: %w", a.path, cause(closeErr))
	}
	return err
}

// cause takes the operating system's reason out of a path error: the message names the file already.
func cause(err error) error {
	if pathErr, ok := err.(*os.PathError); ok { //nolint:errorlint // only the outermost one repeats the path
		return pathErr.Err
	}
	return err
}

// writeAtomically replaces a file as a whole: a reader sees the old content or the new, never a part.
func writeAtomically(path string, write func(io.Writer) error) (err error) {
	temporary := path + ".tmp"
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode) // #nosec G302 G304 -- see fileMode
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary) //nolint:errcheck // the first error is the one that matters
		}
	}()
	if err := write(file); err != nil {
		_ = file.Close() //nolint:errcheck // the first error is the one that matters
		return fmt.Errorf("results: cannot write %s: %w", path, cause(err))
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("results: cannot write %s: %w", path, cause(err))
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}

// WriteFile replaces one file of a results directory, such as verdict.json, as a whole.
func WriteFile(path string, content []byte) error {
	return writeAtomically(path, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}
