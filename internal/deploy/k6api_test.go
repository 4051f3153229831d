package deploy

import (
	"bytes"
	"flag"
	"go/ast"
	"go/build"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The extension is built for k6 v1, and scripts/k6v2.sh builds it for k6 v2 by rewriting import paths. That works as long
// as the sources use only what both have. testdata/k6-api.txt lists the exported declarations of both, one a line:
//
//	=  the same declaration in both
//	~  declared in both, but not alike: a struct with another field, an interface with another method
//
// It is made by `go test ./internal/deploy -run TestK6 -update`, with both versions in the module cache.
const (
	apiList = "testdata/k6-api.txt"
	k6v1    = "v1.8.1"
	k6v2    = "v2.2.0"
)

var update = flag.Bool("update", false, "write "+apiList+" anew from the two versions in the module cache")

func TestK6SourcesUseOnlyWhatBothVersionsHave(t *testing.T) {
	common := readAPIList(t)
	used := k6Used(t, "../..")
	require.Greater(t, len(used), 50, "the search for uses of k6 finds too little")
	for symbol, where := range used {
		require.Contains(t, common, symbol, "%s uses it, and k6 %s and %s do not both have it", where, k6v1, k6v2)
	}
}

// What differs between the versions compiles against both as we use it: scripts/k6v2.sh has shown that for these. A new
// one has to be looked at.
func TestK6DeclarationsThatDifferAreKnown(t *testing.T) {
	common := readAPIList(t)
	var differ []string
	for symbol := range k6Used(t, "../..") {
		if common[symbol] == "~" {
			differ = append(differ, symbol)
		}
	}
	slices.Sort(differ)
	for _, symbol := range differ {
		require.Contains(t, knownToDiffer, symbol)
	}
}

func TestK6APIListIsTrue(t *testing.T) {
	v1, ok1 := moduleDir(t, "k6@"+k6v1)
	v2, ok2 := moduleDir(t, "k6/v2@"+k6v2)
	if !ok1 || !ok2 {
		t.Skipf("k6 %s and %s are not both in the module cache: run scripts/k6v2.sh", k6v1, k6v2)
	}
	first, second := declarations(t, v1), declarations(t, v2)
	var list bytes.Buffer
	for _, symbol := range slices.Sorted(maps.Keys(first)) {
		if theirs, ok := second[symbol]; ok {
			mark := "~"
			if theirs == first[symbol] {
				mark = "="
			}
			list.WriteString(mark + " " + symbol + "\n")
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(apiList, list.Bytes(), 0o600))
	}
	have, err := os.ReadFile(apiList)
	require.NoError(t, err)
	require.Equal(t, list.String(), string(have))
}

func readAPIList(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(apiList)
	require.NoError(t, err)
	marks := map[string]string{}
	for line := range strings.Lines(string(text)) {
		mark, symbol, ok := strings.Cut(strings.TrimSpace(line), " ")
		require.True(t, ok, line)
		marks[symbol] = mark
	}

	return marks
}

func moduleDir(t *testing.T, name string) (string, bool) {
	t.Helper()
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	require.NoError(t, err)
	dir := filepath.Join(strings.TrimSpace(string(cache)), "go.k6.io", filepath.FromSlash(name))
	info, err := os.Stat(dir)

	return dir, err == nil && info.IsDir()
}

const k6Path = "go.k6.io/k6"

// k6Used finds the symbols of k6 that Go files under a directory use, tests included, as "lib/executor.BaseConfig", each
// with a place of use.
func k6Used(t *testing.T, root string) map[string]string {
	t.Helper()
	used := map[string]string{}
	fset := token.NewFileSet()
	eachFile(t, root, func(name string) {
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		imported := map[string]string{}
		for _, spec := range file.Imports {
			full, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			rest, isK6 := strings.CutPrefix(full+"/", k6Path+"/")
			if !isK6 {
				continue
			}
			local := path.Base(full)
			if spec.Name != nil {
				local = spec.Name.Name
			}
			imported[local] = strings.TrimSuffix(rest, "/")
		}
		ast.Inspect(file, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := selector.X.(*ast.Ident); ok && imported[x.Name] != "" {
				used[imported[x.Name]+"."+selector.Sel.Name] = fset.Position(selector.Pos()).String()
			}

			return true
		})
	})

	return used
}

// eachFile calls what it is given for each Go file of the module in a directory.
func eachFile(t *testing.T, root string, do func(name string)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			base := entry.Name()
			if name != root && (base == "bin" || base == "tools" || base == "node_modules" || base == "testdata" || strings.HasPrefix(base, ".")) {
				return fs.SkipDir
			}

			return nil
		}
		if strings.HasSuffix(name, ".go") {
			do(name)
		}

		return nil
	}))
}

// declarations are the exported declarations of a k6 source tree by symbol, without comments and bodies. Packages that
// others cannot import are left out.
func declarations(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	fset := token.NewFileSet()
	eachFile(t, root, func(name string) {
		relative, err := filepath.Rel(root, name)
		require.NoError(t, err)
		dir := filepath.ToSlash(filepath.Dir(relative))
		if dir == "." || strings.HasSuffix(name, "_test.go") || strings.Contains("/"+dir+"/", "/internal/") ||
			strings.HasPrefix(dir, "examples") || strings.HasPrefix(dir, "packaging") {
			return
		}
		if match, err := build.Default.MatchFile(filepath.Split(name)); err != nil || !match {
			return
		}
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			for symbol, node := range exported(decl) {
				var text bytes.Buffer
				require.NoError(t, format.Node(&text, fset, node))
				// A method says more about its type.
				found[dir+"."+symbol] += strings.ReplaceAll(text.String(), k6Path+"/v2", k6Path) + "\n"
			}
		}
	})

	return found
}

// exported are the exported symbols of a declaration, each with what is to be printed for it.
func exported(decl ast.Decl) map[string]any {
	found := map[string]any{}
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		name := decl.Name.Name
		if !ast.IsExported(name) {
			return nil
		}
		if decl.Recv != nil {
			receiver := decl.Recv.List[0].Type
			if star, ok := receiver.(*ast.StarExpr); ok {
				receiver = star.X
			}
			base, ok := receiver.(*ast.Ident)
			if !ok || !base.IsExported() {
				return nil
			}
			name = base.Name + "." + name
		}
		found[name] = decl.Type
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() {
					onlyExportedFields(spec.Type)
					found[spec.Name.Name] = spec.Type
				}
			case *ast.ValueSpec:
				for i, name := range spec.Names {
					if !name.IsExported() {
						continue
					}
					found[name.Name] = ast.NewIdent(name.Name)
					if spec.Type != nil {
						found[name.Name] = spec.Type
					} else if i < len(spec.Values) {
						found[name.Name] = spec.Values[i]
					}
				}
			}
		}
	}

	return found
}

// onlyExportedFields leaves out of a struct what other packages cannot see. An interface keeps all of its methods.
func onlyExportedFields(node ast.Expr) {
	fields, ok := node.(*ast.StructType)
	if !ok {
		return
	}
	fields.Fields.List = slices.DeleteFunc(fields.Fields.List, func(f *ast.Field) bool {
		return len(f.Names) > 0 && !f.Names[0].IsExported()
	})
	for _, field := range fields.Fields.List {
		field.Doc, field.Comment, field.Tag = nil, nil, nil
	}
}

// knownToDiffer says what k6 v2.2.0 has changed, and why that is nothing to us.
var knownToDiffer = map[string]string{
	"cmd/state.GlobalState": "has CloudLogPusher besides; the commands only read it",
	"lib.Options":           "has HandleSummaryTimeout and Features besides",
	"lib.RuntimeOptions":    "has lost NoSummary, which we do not use",
	"lib.TestPreInitState":  "has FeatureFlags besides",
	"output.Params":         "has Features besides; k6 makes it, we only read it",
}
