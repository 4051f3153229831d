package results

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	all := make([]string, 0, len(entries))
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

// Whoever overwrites a directory that a run is still writing to would lose the evidence of both.
func TestADirectoryHasOneWriter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	first, err := Create(dir, Info{Started: noon}, Options{})
	require.NoError(t, err)
	require.NoError(t, first.Request(numbered(1)))
	require.NoError(t, first.Flush(noon))

	_, err = Create(dir, Info{Started: noon}, Options{Overwrite: true})
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, dir)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	_, err = Create(link, Info{Started: noon}, Options{Overwrite: true})
	require.ErrorIs(t, err, ErrInUse, "under another name")
	_, err = LockDir(dir)
	require.ErrorIs(t, err, ErrInUse)

	all, _ := readAll(t, dir)
	require.Len(t, all, 1, "a reader needs no lock, and nothing was lost")
	require.NoError(t, first.Close(noon, nil))
	all, _ = readAll(t, dir)
	require.Len(t, all, 1)
	require.Equal(t, []string{EventsFile, HistogramDir, RequestsFile, RunFile, SeriesFile}, names(t, dir))

	second, err := Create(dir, Info{Started: noon}, Options{Overwrite: true})
	require.NoError(t, err, "its end gives the directory free")
	require.NoError(t, second.Close(noon, nil))
}

// The operating system gives the lock of a killed process free, and the file alone is no lock.
func TestAFileThatAKilledWriterLeftIsNoLock(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, LockFile), nil, 0o600))
	w, err := Create(dir, Info{Started: noon}, Options{})
	require.NoError(t, err, "nor does it make the directory one that is not empty")
	require.NoError(t, w.Close(noon, nil))
	require.NoFileExists(t, filepath.Join(dir, LockFile))
}

// Where a lock is removed while another one waits for it, both must not hold one.
func TestALockOfARemovedFileIsNone(t *testing.T) {
	dir := t.TempDir()
	first, err := LockDir(dir)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, LockFile)))
	second, err := LockDir(dir)
	require.NoError(t, err)
	first.Release() // must not remove the file of the second one
	_, err = LockDir(dir)
	require.ErrorIs(t, err, ErrInUse)
	second.Release()
	second.Release()
	require.Empty(t, names(t, dir))
}

func TestAFileSystemWithoutLocksIsNoFailure(t *testing.T) {
	const path = "dir/.lock"
	missing, err := outcome(path, true, nil)
	require.NoError(t, err)
	require.NoError(t, missing)
	missing, err = outcome(path, false, nil)
	require.ErrorIs(t, err, ErrInUse)
	require.NoError(t, missing)
	for _, errno := range []error{syscall.ENOLCK, syscall.ENOTSUP, syscall.ENOSYS} {
		missing, err = outcome(path, false, errno)
		require.NoError(t, err, "%v", errno)
		require.ErrorIs(t, missing, errno)
		require.ErrorContains(t, missing, "dir: the file system gives no locks")
	}
	missing, err = outcome(path, false, &fs.PathError{Op: "open", Path: path, Err: syscall.EACCES})
	require.ErrorIs(t, err, fs.ErrPermission)
	require.NoError(t, missing)
}

// Without locks, or by hand, the files of a run can be taken away while it writes: it must not end as if it had evidence.
func TestEvidenceThatIsTakenAwayIsAnError(t *testing.T) {
	for name, take := range map[string]func(path string) error{
		"removed": os.Remove,
		"replaced": func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, nil, 0o600))
		},
	} {
		for _, file := range []string{RequestsFile, SeriesFile, EventsFile} {
			dir := t.TempDir()
			w, err := Create(dir, Info{Started: noon}, Options{})
			require.NoError(t, err)
			require.NoError(t, w.Request(numbered(1)))
			require.NoError(t, w.Flush(noon))
			require.NoError(t, take(filepath.Join(dir, file)))
			err = w.Flush(noon)
			require.ErrorIs(t, err, ErrGone, "%s %s", file, name)
			require.ErrorContains(t, err, filepath.Join(dir, file))
			require.ErrorIs(t, w.Close(noon, nil), ErrGone)
		}
	}
}

// What could not begin leaves nothing: files without content make a directory that is not empty.
func TestACreateThatFailsLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	obstacle := RunFile + ".tmp"
	require.NoError(t, os.Mkdir(filepath.Join(dir, obstacle), 0o700))
	_, err := Create(dir, Info{Started: noon}, Options{Overwrite: true})
	require.ErrorContains(t, err, obstacle)
	require.Equal(t, []string{obstacle}, names(t, dir))
}

func TestDiscardLeavesNothing(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "run")
	w, err := Create(dir, Info{Started: noon}, Options{})
	require.NoError(t, err)
	require.NoError(t, w.Request(numbered(1)))
	require.NoError(t, w.Flush(noon))
	require.NoError(t, w.Discard())
	require.NoError(t, w.Discard())
	require.Empty(t, names(t, parent), "the directory was made for it")
	require.ErrorIs(t, w.Request(numbered(2)), errClosed)

	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine.txt"), nil, 0o600))
	w, err = Create(dir, Info{Started: noon}, Options{Overwrite: true})
	require.NoError(t, err)
	require.NoError(t, w.Discard())
	require.Equal(t, []string{"mine.txt"}, names(t, dir))
}

// What is written as a whole is there as a whole or not at all, and until then what was there before is.
func TestWholeEvidenceAppearsAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	begin := func(overwrite bool, rows int64) *Writer {
		w, err := Create(dir, Info{Started: noon, Ended: noon}, Options{Whole: true, Overwrite: overwrite})
		require.NoError(t, err)
		for i := range rows {
			require.NoError(t, w.Request(numbered(i)))
		}
		require.NoError(t, w.Flush(noon))
		return w
	}
	w := begin(false, 1)
	_, err := Open(dir)
	require.ErrorContains(t, err, "is no results directory")
	_, err = LockDir(dir)
	require.ErrorIs(t, err, ErrInUse)
	require.NoError(t, w.Close(noon, nil))
	all, _ := readAll(t, dir)
	require.Len(t, all, 1)
	require.Equal(t, []string{EventsFile, HistogramDir, RequestsFile, RunFile, SeriesFile}, names(t, dir))
	run, err := Open(dir)
	require.NoError(t, err)
	require.NoError(t, run.CheckHistograms())
	require.Len(t, names(t, filepath.Join(dir, HistogramDir)), 2)

	require.NoError(t, os.WriteFile(filepath.Join(dir, VerdictFile), []byte("{}"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine.txt"), nil, 0o600))
	w = begin(true, 3)
	all, _ = readAll(t, dir)
	require.Len(t, all, 1, "the old one is whole until the new one is")
	require.FileExists(t, filepath.Join(dir, VerdictFile))
	require.NoError(t, w.Discard())
	all, _ = readAll(t, dir)
	require.Len(t, all, 1)
	require.FileExists(t, filepath.Join(dir, VerdictFile))

	w = begin(true, 3)
	require.NoError(t, w.Close(noon, nil))
	all, _ = readAll(t, dir)
	require.Len(t, all, 3)
	require.NoFileExists(t, filepath.Join(dir, VerdictFile))
	require.Equal(t, []string{EventsFile, HistogramDir, "mine.txt", RequestsFile, RunFile, SeriesFile}, names(t, dir))
}

// A process that dies while it writes the whole leaves what nobody takes for results, and what does not stand in the way.
func TestAnUnfinishedWholeIsNoResult(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	left := filepath.Join(dir, unfinishedDir)
	require.NoError(t, os.MkdirAll(filepath.Join(left, HistogramDir), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(left, RequestsFile), []byte("half a li"), 0o600))
	_, err := Open(dir)
	require.ErrorContains(t, err, "is no results directory")
	occupied, err := Occupied(dir)
	require.NoError(t, err)
	require.False(t, occupied)
	w, err := Create(dir, Info{Started: noon}, Options{Whole: true})
	require.NoError(t, err)
	require.NoError(t, w.Close(noon, nil))
	require.NoDirExists(t, left)
	occupied, err = Occupied(dir)
	require.NoError(t, err)
	require.True(t, occupied)
}
