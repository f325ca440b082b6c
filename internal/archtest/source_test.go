package archtest_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/strandline/strandline"

// source is one Go file of the module.
type source struct {
	path   string // Slash-separated, relative to the module's root.
	test   bool
	syntax *ast.File
	lines  int
	fset   *token.FileSet
}

// dir is the directory of the file, "." for the root.
func (s source) dir() string { return path.Dir(s.path) }

// at formats a place in the file for a message.
func (s source) at(p token.Pos) string {
	return s.path + ":" + strconv.Itoa(s.fset.Position(p).Line)
}

// imports returns the paths that a file imports.
func (s source) imports() []string {
	out := make([]string, 0, len(s.syntax.Imports))
	for _, i := range s.syntax.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// inModule returns the directory of an import of ours.
func inModule(importPath string) (dir string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// loadOnce parses the module once for all tests.
var loadOnce = sync.OnceValues(load)

func sources(t *testing.T) []source {
	t.Helper()
	s, err := loadOnce()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// root is the module's directory: the nearest one above with a go.mod.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", errors.New("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}

func load() ([]source, error) {
	top, err := root()
	if err != nil {
		return nil, err
	}
	var out []source
	fset := token.NewFileSet()
	err = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipDir(top, name)
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		syntax, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, name)
		if err != nil {
			return err
		}
		out = append(out, source{
			path: filepath.ToSlash(rel), test: strings.HasSuffix(name, "_test.go"),
			syntax: syntax, fset: fset, lines: fset.File(syntax.FileStart).LineCount(),
		})
		return nil
	})
	return out, err
}

// skipDir leaves out what is not the module's code: other modules, test data,
// hidden directories.
func skipDir(top, name string) error {
	base := filepath.Base(name)
	if name == top {
		return nil
	}
	_, err := os.Stat(filepath.Join(name, "go.mod"))
	if err == nil || strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules" {
		return fs.SkipDir
	}
	return nil
}

// product returns the files that become part of a package others can import.
func product(t *testing.T) []source {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(sources(t)), func(s source) bool { return s.test })
}

// within reports whether a directory is, or is below, another.
func within(dir, parent string) bool {
	return dir == parent || strings.HasPrefix(dir, parent+"/")
}
