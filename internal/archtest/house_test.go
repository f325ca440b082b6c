package archtest_test

import (
	"errors"
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// maxFileLines is where a file has become two.
const maxFileLines = 800

// maxFunctionLines is where a function of the product has become two.
const maxFunctionLines = 70

func TestSizes(t *testing.T) {
	for _, s := range sources(t) {
		if s.lines > maxFileLines {
			t.Errorf("%s has %d lines, the limit is %d", s.path, s.lines, maxFileLines)
		}
		if s.test || isGenerated(s) {
			continue
		}
		for _, d := range s.syntax.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1
			if n > maxFunctionLines && !isTable(f.Body) {
				t.Errorf("%s: %s has %d lines, the limit is %d", s.at(f.Pos()), f.Name.Name, n, maxFunctionLines)
			}
		}
	}
}

func isGenerated(s source) bool { return ast.IsGenerated(s.syntax) }

// isTable recognises a function that is one return or one switch: a table in
// the form of code, as long as what it lists.
func isTable(body *ast.BlockStmt) bool {
	if len(body.List) == 0 || len(body.List) > 2 {
		return false
	}
	switch body.List[0].(type) {
	case *ast.ReturnStmt, *ast.SwitchStmt:
		return true
	}
	return false
}

func TestEveryPackageIsDocumented(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range product(t) {
		documented[s.dir()] = documented[s.dir()] || s.syntax.Doc != nil
	}
	for _, dir := range slices.Sorted(maps.Keys(documented)) {
		if !documented[dir] {
			t.Errorf("package %s has no documentation", dir)
		}
	}
}

func TestExportedNamesAreDocumented(t *testing.T) {
	for _, s := range product(t) {
		if s.syntax.Name.Name == "main" {
			continue
		}
		for _, d := range s.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Doc == nil && d.Name.IsExported() && exportedReceiver(d) {
					t.Errorf("%s: %s is not documented", s.at(d.Pos()), d.Name.Name)
				}
			case *ast.GenDecl:
				checkSpecs(t, s, d)
			}
		}
	}
}

// exportedReceiver reports whether a function can be seen from outside.
func exportedReceiver(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	name := ""
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return name == ""
	})
	return ast.IsExported(name)
}

// checkSpecs wants a comment on each exported type, and on each constant or
// variable or the group it stands in.
func checkSpecs(t *testing.T, s source, d *ast.GenDecl) {
	t.Helper()
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() && spec.Doc == nil && d.Doc == nil {
				t.Errorf("%s: %s is not documented", s.at(spec.Pos()), spec.Name.Name)
			}
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				if name.IsExported() && spec.Doc == nil && spec.Comment == nil && d.Doc == nil {
					t.Errorf("%s: %s is not documented", s.at(spec.Pos()), name.Name)
				}
			}
		}
	}
}

func TestNoInit(t *testing.T) {
	for _, s := range sources(t) {
		for _, d := range s.syntax.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: init runs behind the reader's back; call it where it is needed", s.at(f.Pos()))
			}
		}
	}
}

// Tests wait for what they wait for, and run.
func TestTestsNeitherSleepNorSkip(t *testing.T) {
	for _, s := range sources(t) {
		// Suites under test/ drive real processes and toolchains that a machine may lack.
		if !s.test || within(s.dir(), "test") {
			continue
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if isSelector(call.Fun, "time", "Sleep") {
				t.Errorf("%s sleeps: use a synctest bubble, or wait for the event", s.at(call.Pos()))
			}
			for _, receiver := range []string{"t", "b", "f", "tb"} {
				if isSelector(call.Fun, receiver, "Skip", "Skipf", "SkipNow") {
					t.Errorf("%s skips", s.at(call.Pos()))
				}
			}
			return true
		})
	}
}

// A context is the first parameter, never kept, and made by main and tests.
func TestContexts(t *testing.T) {
	for _, s := range product(t) {
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.StructType:
				for _, f := range n.Fields.List {
					if isSelector(f.Type, "context", "Context") {
						t.Errorf("%s keeps a context in a struct", s.at(f.Pos()))
					}
				}
			case *ast.CallExpr:
				if isLogCall(n) {
					return false // A line of the log outlives no request.
				}
				if isSelector(n.Fun, "context", "Background", "TODO") && mayNotMakeContext(s) {
					t.Errorf("%s makes a context; take it as the first parameter", s.at(n.Pos()))
				}
			}
			return true
		})
	}
}

// isLogCall recognises logger.Log(context.Background(), ...).
func isLogCall(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Log", "LogAttrs", "Enabled"}, sel.Sel.Name)
}

func mayNotMakeContext(s source) bool {
	return !within(s.dir(), "test") && !within(s.dir(), "cmd") && s.dir() != "strandlinetest"
}

// banned are words of identifiers that the glossary has another word for. "LSO"
// abbreviates both the log start offset and the last stable offset.
func banned() map[string]string {
	return map[string]string{
		"lso":       "lastStableOffset or logStartOffset",
		"hw":        "highWatermark",
		"hwm":       "highWatermark",
		"highwater": "highWatermark",
		"leo":       "logEndOffset",
	}
}

// bannedPhrases are the same for whole identifiers, in any case.
func bannedPhrases() map[string]string {
	return map[string]string{
		"highwatermark": "highWatermark", // Only when written otherwise, see below.
		"oldestoffset":  "logStartOffset",
		"newestoffset":  "logEndOffset",
		"flushedoffset": "recoveryPoint",
		"syncedoffset":  "recoveryPoint",
	}
}

// bannedSuffixes are words in a type's name that say nothing.
func bannedSuffixes() []string {
	return []string{"Manager", "Handler", "Helper", "Helpers", "Util", "Utils", "Common", "Impl"}
}

func TestNames(t *testing.T) {
	for _, s := range sources(t) {
		for _, name := range []string{"util", "utils", "common", "helper", "helpers", "misc"} {
			if s.syntax.Name.Name == name {
				t.Errorf("%s: a package named %s says nothing", s.path, name)
			}
		}
		for _, id := range declared(s.syntax) {
			checkName(t, s, id)
		}
	}
}

func checkName(t *testing.T, s source, id *ast.Ident) {
	t.Helper()
	for _, word := range words(id.Name) {
		if better, ok := banned()[strings.ToLower(word)]; ok {
			t.Errorf("%s: %s: the word is %s", s.at(id.Pos()), id.Name, better)
		}
	}
	better, ok := bannedPhrases()[strings.ToLower(id.Name)]
	if ok && id.Name != "highWatermark" && id.Name != "HighWatermark" {
		t.Errorf("%s: %s: the word is %s", s.at(id.Pos()), id.Name, better)
	}
	if strings.EqualFold(id.Name, "commitIndex") && !within(s.dir(), "internal/quorum") {
		t.Errorf("%s: %s: only Raft has one; the word is highWatermark", s.at(id.Pos()), id.Name)
	}
}

func TestTypesAndGetters(t *testing.T) {
	for _, s := range product(t) {
		for _, d := range s.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				rest, ok := strings.CutPrefix(d.Name.Name, "Get")
				if ok && rest != "Version" && // kmsg.Request and kmsg.Response have it.
					rest != "" && unicode.IsUpper(rune(rest[0])) && d.Type.Params.NumFields() == 0 {
					t.Errorf("%s: %s: a getter is named for what it returns", s.at(d.Pos()), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					checkTypeName(t, s, spec)
				}
			}
		}
	}
}

func checkTypeName(t *testing.T, s source, spec ast.Spec) {
	t.Helper()
	typ, ok := spec.(*ast.TypeSpec)
	if !ok {
		return
	}
	for _, suffix := range bannedSuffixes() {
		if strings.HasSuffix(typ.Name.Name, suffix) {
			t.Errorf("%s: type %s: %q says nothing about it", s.at(typ.Pos()), typ.Name.Name, suffix)
		}
	}
}

// declared returns the identifiers that a file introduces.
func declared(f *ast.File) []*ast.Ident {
	var out []*ast.Ident
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			out = append(out, n.Name)
		case *ast.TypeSpec:
			out = append(out, n.Name)
		case *ast.ValueSpec:
			out = append(out, n.Names...)
		case *ast.Field:
			out = append(out, n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				out = append(out, identifiers(n.Lhs...)...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				out = append(out, identifiers(n.Key, n.Value)...)
			}
		}
		return true
	})
	return out
}

func identifiers(exprs ...ast.Expr) []*ast.Ident {
	var out []*ast.Ident
	for _, e := range exprs {
		if id, ok := e.(*ast.Ident); ok {
			out = append(out, id)
		}
	}
	return out
}

// words splits an identifier at its capitals: readLSOFrom is read, LSO, From.
func words(name string) []string {
	var out []string
	runes := []rune(name)
	start := 0
	cut := func(end int) {
		if end > start {
			out = append(out, string(runes[start:end]))
		}
		start = end
	}
	for i := 1; i < len(runes); i++ {
		upper, before := unicode.IsUpper(runes[i]), unicode.IsUpper(runes[i-1])
		nextLower := i+1 < len(runes) && unicode.IsLower(runes[i+1])
		if runes[i] == '_' || runes[i-1] == '_' || upper && (!before || nextLower) {
			cut(i)
		}
	}
	cut(len(runes))
	return out
}

func TestWords(t *testing.T) {
	for name, want := range map[string]string{
		"lso": "lso", "readLSOFrom": "read LSO From", "HW": "HW", "theLso": "the Lso",
		"alsoFine": "also Fine", "LEO": "LEO", "x": "x", "": "",
	} {
		if got := strings.Join(words(name), " "); got != want {
			t.Errorf("words(%q) = %q, want %q", name, got, want)
		}
	}
}

// A note of work to do carries the number of its issue.
func TestNotesHaveAnIssue(t *testing.T) {
	note := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XXX|HACK)\b`)
	issue := regexp.MustCompile(`#\d+`)
	for _, s := range sources(t) {
		for _, group := range s.syntax.Comments {
			for _, c := range group.List {
				if note.MatchString(c.Text) && !issue.MatchString(c.Text) {
					t.Errorf("%s: no issue's number: %s", s.at(c.Pos()), c.Text)
				}
			}
		}
	}
}

// The code map names every package. The document may be missing as long as
// nobody has begun it.
func TestCodeMapIsComplete(t *testing.T) {
	top, err := root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(top, "docs", "ARCHITECTURE.md"))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	named := func(name string) bool { return strings.Contains(string(text), "`"+name+"`") }
	dirs := map[string]bool{}
	for _, s := range sources(t) {
		dirs[s.dir()] = true
	}
	for dir := range dirs {
		// A part of a room may stand in its row by its last name.
		part := named(path.Dir(dir)) && (named(path.Base(dir)) || named(path.Base(path.Dir(dir))+"/"+path.Base(dir)))
		if dir != "." && !named(dir) && !part && !within(dir, "test") {
			t.Errorf("docs/ARCHITECTURE.md: the code map does not name %s", dir)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(internal/[^`]+)`").FindAllStringSubmatch(string(text), -1) {
		if !dirs[m[1]] {
			t.Errorf("docs/ARCHITECTURE.md: the code map names %s, which holds no package", m[1])
		}
	}
}

// A decision is cited by its number, so each has one of its own, and says it.
func TestDecisionsHaveNumbersOfTheirOwn(t *testing.T) {
	top, err := root()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(top, "docs", "decisions", "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatal("no decisions", err)
	}
	seen := map[string]string{}
	for _, file := range files {
		name := filepath.Base(file)
		number, _, _ := strings.Cut(name, "-")
		if other := seen[number]; other != "" {
			t.Errorf("docs/decisions: %s and %s have one number", other, name)
		}
		seen[number] = name
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if number != "000" && !strings.HasPrefix(string(text), "# "+number+": ") {
			t.Errorf("docs/decisions/%s does not begin with its number", name)
		}
	}
}
