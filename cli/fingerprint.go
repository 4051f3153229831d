package cli

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
)

// environmentOf finds the variables that a script reads.
var environmentOf = regexp.MustCompile(`__ENV(?:\.([A-Za-z_]\w*)|\[['"]([A-Za-z_]\w*)['"]\])`)

// fingerprints identify what the probes of a search run. Files are all that k6 puts into an archive: the script, its
// modules, and what they open, traces among it. Archiving also shows whether the script's init code runs at all.
func (p *prober) fingerprints(ctx context.Context, rate float64) (map[string]string, error) {
	agreed, err := json.Marshal(p.contract)
	if err != nil {
		return nil, fmt.Errorf("capacity: %w", err)
	}
	files, read, err := p.archived(ctx, rate)
	if err != nil {
		return nil, wrongUse(err)
	}
	variables := map[string]string{}
	for _, name := range read {
		if value, ok := os.LookupEnv(name); ok {
			variables[name] = value
		}
	}
	for name, value := range p.env {
		variables[name] = value
	}
	for _, name := range searchOwn {
		delete(variables, name)
	}
	environment, err := json.Marshal(variables)
	if err != nil {
		return nil, fmt.Errorf("capacity: %w", err)
	}

	return map[string]string{
		"the script or a file that it reads": files, "the contract": digest(agreed), "the script's variables": digest(environment),
	}, nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)

	return hex.EncodeToString(sum[:16])
}

// archiveFile is what k6 archives the script into, in the search's own directory: the one that can be written to for
// certain, since an image may have no place for temporary files. It is gone once it was read; what a killed search left is
// written over.
const archiveFile = "script.tar.tmp"

// archived is the digest of the script's files, and the names of the variables that they read.
func (p *prober) archived(ctx context.Context, rate float64) (files string, read []string, err error) {
	archive, err := os.Create(filepath.Join(p.dir, archiveFile))
	if err != nil {
		return "", nil, fmt.Errorf("--out: %w", err)
	}
	defer func() { err = errors.Join(err, archive.Close(), os.Remove(archive.Name())) }()
	// As `k6 run`, the script sees the process's own variables, of which none is kept.
	args := append([]string{"archive", "--quiet", "--include-system-env-vars", "--exclude-env-vars", "-O", archive.Name()}, p.variables(rate, p.contract.Phases.Steady.String(), 1)...)
	cmd := exec.CommandContext(ctx, p.binary, append(args, p.script)...) // #nosec G204 -- this binary, the user's script
	cmd.Env = p.environ()
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("--script %s: %w; k6 said:\n%s", p.script, err, lastLines(string(output), 12))
	}

	return readArchive(archive)
}

func readArchive(archive io.Reader) (files string, read []string, err error) {
	const metadata = "metadata.json" // options and variables, which are not files
	sums := sha256.New()
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", nil, fmt.Errorf("k6's archive: %w", err)
		}
		if header.Name == metadata || header.Typeflag != tar.TypeReg {
			continue
		}
		names, err := sumFile(sums, header.Name, reader)
		if err != nil {
			return "", nil, fmt.Errorf("k6's archive: %s: %w", header.Name, err)
		}
		read = append(read, names...)
	}
	slices.Sort(read)

	return hex.EncodeToString(sums.Sum(nil)[:16]), slices.Compact(read), nil
}

// longestScript is how much of a file is searched for variables.
const longestScript = 1 << 20

// sumFile adds a file to the digest, and finds the variables that it reads if it is a script.
func sumFile(sums hash.Hash, name string, file io.Reader) ([]string, error) {
	if _, err := fmt.Fprintf(sums, "%d %s\n", len(name), name); err != nil {
		return nil, err //nolint:wrapcheck // the caller names the file
	}
	head, err := io.ReadAll(io.TeeReader(io.LimitReader(file, longestScript), sums))
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names the file
	}
	if _, err := io.Copy(sums, file); err != nil {
		return nil, err //nolint:wrapcheck // the caller names the file
	}
	var names []string
	for _, m := range environmentOf.FindAllSubmatch(head, -1) {
		names = append(names, string(m[1])+string(m[2]))
	}

	return names, nil
}
