package results

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// LockFile is the file by whose lock a directory has one writer at a time. The operating system keeps the lock, and gives it
// free when its process ends, however it ends: the file alone is none.
const LockFile = ".lock"

// ErrInUse is returned for a directory that another run, merge or search is writing to.
var ErrInUse = errors.New("another one is writing to it")

// Lock keeps other writers out of a directory. Readers need none.
type Lock struct {
	// Missing says why there is no lock after all: a file system, mostly one of a network, may know none. Then nothing keeps
	// another writer out, which is worth a warning, and no reason not to run. Nil where the directory is locked.
	Missing error

	file *flock.Flock
}

// LockDir locks a directory that exists until Release. It does not wait: ErrInUse is returned where another one has the lock.
func LockDir(dir string) (*Lock, error) {
	path := filepath.Join(dir, LockFile)
	const attempts = 3 // the file is another one's that was just removed with its lock; more often, it is not to be relied on
	for range attempts {
		file := flock.New(path, flock.SetPermissions(fileMode))
		locked, err := file.TryLock()
		missing, failure := outcome(path, locked, err)
		if failure != nil {
			return nil, failure
		}
		l := &Lock{Missing: missing, file: file}
		if missing != nil {
			l.file = nil
			_, _ = file.Close(), os.Remove(path) //nolint:errcheck // it is no lock, and stands in nobody's way
			return l, nil                        //nolint:nilerr // l.Missing tells
		}
		if l.inPlace() {
			return l, nil
		}
		_ = file.Close() //nolint:errcheck // nobody can see what it locked
	}
	return &Lock{Missing: fmt.Errorf("results: %s does not stay the file that was locked", path)}, nil
}

// outcome tells what came of locking: the file could not be opened, another one has the lock, or there are no locks.
func outcome(path string, locked bool, err error) (missing, failure error) {
	var ofFile *fs.PathError
	switch {
	case errors.As(err, &ofFile):
		return nil, fmt.Errorf("results: %w", err)
	case err != nil:
		return fmt.Errorf("results: %s: the file system gives no locks: %w", filepath.Dir(path), err), nil
	case !locked:
		return nil, fmt.Errorf("results: directory %s is in use: %w", filepath.Dir(path), ErrInUse)
	}
	return nil, nil
}

// inPlace is true while the file that is locked is the one that others find.
func (l *Lock) inPlace() bool {
	own, err := l.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(l.file.Path())
	return err == nil && os.SameFile(own, there)
}

// Release gives the directory free. A second Release does nothing.
func (l *Lock) Release() {
	if l.file == nil {
		return
	}
	if l.inPlace() {
		_ = os.Remove(l.file.Path()) //nolint:errcheck // Windows keeps a file that is open: it stays, and is no lock
	}
	_ = l.file.Close() //nolint:errcheck // the end of the process gives it free at the latest
	l.file = nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}

// Occupied reports whether a directory holds anything. The traces of a writer that was killed do not count; one that does not
// exist holds nothing.
func Occupied(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("results: %w", err)
	}
	for _, entry := range entries {
		if name := entry.Name(); name != LockFile && name != unfinishedDir {
			return true, nil
		}
	}
	return false, nil
}
