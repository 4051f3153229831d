package results

import (
	"fmt"
	"path/filepath"
)

// Place is the one path of a directory that exists, whatever it is called: absolute, and without symbolic links. Two names
// of one directory have the same place.
func Place(dir string) (string, error) {
	path, err := filepath.EvalSymlinks(dir)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("results: %w", err)
	}
	return path, nil
}
