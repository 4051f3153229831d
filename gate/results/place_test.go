package results

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNamesOfOneDirectoryHaveOnePlace(t *testing.T) {
	dir := t.TempDir()
	run, link := filepath.Join(dir, "run"), filepath.Join(dir, "link")
	require.NoError(t, os.Mkdir(run, 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "other"), 0o700))
	require.NoError(t, os.Symlink("run", link))
	t.Chdir(dir)
	want, err := Place(run)
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(want))
	for _, name := range []string{"run", "run/", "./run", "other/../run", "link", link + "/"} {
		got, err := Place(name)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
	other, err := Place("other")
	require.NoError(t, err)
	require.NotEqual(t, want, other)
	_, err = Place("none")
	require.ErrorContains(t, err, "none")
}
