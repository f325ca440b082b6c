package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/httpapi"
	"github.com/strandline/strandline/internal/kafka"
)

// document is what is checked of the OpenAPI document.
type document struct {
	OpenAPI    string `json:"openapi"`
	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Schemas   map[string]schema
		Responses map[string]response
	}
}

type operation struct {
	OperationID string `json:"operationId"`
	Summary     string
	Parameters  []struct{ Name, In, Description string }
	RequestBody *struct {
		Content map[string]struct{ Schema schema }
	}
	Responses map[string]response
}

type response struct {
	Ref         string `json:"$ref"`
	Description string
	Content     map[string]struct{ Schema schema }
}

type schema struct {
	Ref         string `json:"$ref"`
	Type        any
	Format      string
	Description string
	Properties  map[string]schema
	Required    []string
	Items       *schema
	AnyOf       []schema
	// Additional is false of our structs, and a schema of maps.
	Additional json.RawMessage `json:"additionalProperties"`
	Encoding   string          `json:"contentEncoding"`
}

func readDocument(t *testing.T) document {
	t.Helper()
	w := httptest.NewRecorder()
	httpapi.New(&broker{}, noServices()).ServeHTTP(w, httptest.NewRequest("GET", "/v1/openapi.json", nil))
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	var d document
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(d.OpenAPI, "3.1") {
		t.Errorf("version %s", d.OpenAPI)
	}
	return d
}

func (d *document) operations(t *testing.T) map[string]operation {
	t.Helper()
	all := map[string]operation{}
	for path, methods := range d.Paths {
		for method, raw := range methods {
			if method == "parameters" {
				continue
			}
			var o operation
			if err := json.Unmarshal(raw, &o); err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			all[strings.ToUpper(method)+" "+path] = o
		}
	}
	return all
}

const schemas = "#/components/schemas/"

// Every route and method is in the document and no others, with the body that it
// reads, the answers that it gives, and the statuses that it refuses with.
func TestOpenAPIHasEveryRoute(t *testing.T) {
	d := readDocument(t)
	operations := d.operations(t)
	ids := map[string]bool{}
	for _, row := range httpapi.Routes() {
		name := row.Method + " " + row.Path
		o, ok := operations[name]
		delete(operations, name)
		if !ok {
			t.Errorf("%s is not in the document", name)
			continue
		}
		if ids[o.OperationID] || o.OperationID == "" || o.Summary == "" {
			t.Errorf("%s: operation id %q, summary %q", name, o.OperationID, o.Summary)
		}
		ids[o.OperationID] = true
		if strings.Contains(row.Path, "{") && d.Paths[row.Path]["parameters"] == nil {
			t.Errorf("%s: the parameters of the path are missing", name)
		}
		wantBody, gotBody := "", ""
		if row.Body != nil {
			wantBody = schemas + reflect.TypeOf(row.Body).Name()
		}
		if o.RequestBody != nil {
			gotBody = o.RequestBody.Content["application/json"].Schema.Ref
		}
		if gotBody != wantBody {
			t.Errorf("%s: body %q, want %q", name, gotBody, wantBody)
		}
		checkAnswers(t, &d, name, &o, row)
	}
	for name := range operations {
		t.Errorf("%s is in the document and not served", name)
	}
}

func checkAnswers(t *testing.T, d *document, name string, o *operation, row httpapi.Route) {
	t.Helper()
	want := []int{400, 429, 500, 503}
	if strings.Contains(row.Path, "{") {
		want = append(want, 404)
	}
	if row.Body != nil {
		want = append(want, 408, 413, 415)
	}
	if row.Conflicts {
		want = append(want, 409)
	}
	if row.Method != http.MethodGet || row.Conflicts { // It changes something.
		want = append(want, 403)
	}
	for status, answer := range row.Answers {
		want = append(want, status)
		got := o.Responses[strconv.Itoa(status)].Content["application/json"].Schema
		refs := []string{got.Ref}
		for _, s := range got.AnyOf {
			refs = append(refs, s.Ref)
		}
		if typ := reflect.TypeOf(answer); answer != nil && typ.Name() != "" && !slices.Contains(refs, schemas+typ.Name()) {
			t.Errorf("%s: status %d is %v, want %s", name, status, refs, typ.Name())
		}
	}
	slices.Sort(want)
	var got []int
	for text, r := range o.Responses {
		status, _ := strconv.Atoi(text)
		got = append(got, status)
		if status >= 400 && (r.Ref != "#/components/responses/"+text || d.Components.Responses[text].Description == "") {
			t.Errorf("%s: status %d is %q", name, status, r.Ref)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: statuses (-want +got):\n%s", name, diff)
	}
}

// Every field of every body and answer is described, with its type.
func TestOpenAPIHasEveryField(t *testing.T) {
	d := readDocument(t)
	seen := map[string]bool{}
	var check func(typ reflect.Type, answer bool)
	check = func(typ reflect.Type, answer bool) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			check(typ.Elem(), answer)
			return
		case reflect.Struct:
		default:
			return
		}
		if typ.PkgPath() == "time" || seen[typ.Name()] {
			return
		}
		seen[typ.Name()] = true
		s, ok := d.Components.Schemas[typ.Name()]
		if !ok {
			t.Errorf("there is no schema %s", typ.Name())
			return
		}
		if string(s.Additional) != "false" || s.Description == "" {
			t.Errorf("%s: additional properties %s, description %q", typ.Name(), s.Additional, s.Description)
		}
		want, required := map[string]string{}, []string{}
		for _, f := range reflect.VisibleFields(typ) {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				continue
			}
			want[name] = typeName(f.Type)
			if options == "omitempty" { // Left out instead of null.
				want[name] = strings.TrimSuffix(want[name], "?")
			}
			if answer && options == "" && typ.Name() != "BatchResult" {
				required = append(required, name)
			}
			check(f.Type, answer)
		}
		got := map[string]string{}
		for name, p := range s.Properties {
			got[name] = p.name()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-fields +schema):\n%s", typ.Name(), diff)
		}
		if slices.Sort(required); answer {
			slices.Sort(s.Required)
			if diff := cmp.Diff(required, s.Required, cmp.Transformer("", func(s []string) string { return fmt.Sprint(s) })); diff != "" {
				t.Errorf("%s: required (-fields +schema):\n%s", typ.Name(), diff)
			}
		}
	}
	for _, row := range httpapi.Routes() {
		if row.Body != nil {
			check(reflect.TypeOf(row.Body), false)
		}
		for _, answer := range row.Answers {
			if answer != nil {
				check(reflect.TypeOf(answer), true)
			}
		}
	}
	seen["ErrorBody"] = true // What problems come in.
	for name := range d.Components.Schemas {
		if !seen[name] {
			t.Errorf("schema %s is used nowhere", name)
		}
	}
}

// typeName writes a type of Go as name does one of the document.
func typeName(typ reflect.Type) string {
	switch typ.Kind() {
	case reflect.Pointer:
		return typeName(typ.Elem()) + "?"
	case reflect.Slice:
		if typ.Elem().Kind() == reflect.Uint8 {
			return "base64?"
		}
		return "[]" + typeName(typ.Elem())
	case reflect.Map:
		return "map of " + typeName(typ.Elem())
	case reflect.Struct:
		if typ.PkgPath() == "time" {
			return "string date-time"
		}
		return typ.Name()
	case reflect.Int:
		return "integer"
	case reflect.Int16, reflect.Int32, reflect.Int64:
		return "integer " + typ.Kind().String()
	case reflect.Bool:
		return "boolean"
	}
	return typ.Kind().String()
}

func (s schema) name() string {
	if len(s.AnyOf) == 2 && s.AnyOf[1].Type == "null" {
		return s.AnyOf[0].name() + "?"
	}
	if s.Ref != "" {
		return strings.TrimPrefix(s.Ref, schemas)
	}
	name, optional := s.Type, ""
	if several, ok := s.Type.([]any); ok && len(several) == 2 && several[1] == "null" {
		name, optional = several[0], "?"
	}
	switch {
	case name == "array":
		return "[]" + s.Items.name() + optional
	case name == "object":
		var of schema
		_ = json.Unmarshal(s.Additional, &of)
		return "map of " + of.name() + optional
	case s.Encoding != "":
		return s.Encoding + optional
	case s.Format != "":
		return fmt.Sprint(name, " ", s.Format) + optional
	}
	return fmt.Sprint(name) + optional
}

// What reads a produce request in place knows the fields of its type.
func TestProduceRequestIsReadAsDescribed(t *testing.T) {
	request, records, header := httpapi.FieldNames()
	fields := func(v any) []string {
		var names []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if name := f.Tag.Get("json"); name != "" {
				names = append(names, name)
			}
		}
		return names
	}
	if diff := cmp.Diff(fields(httpapi.ProduceRequest{}), request); diff != "" {
		t.Errorf("request (-type +reader):\n%s", diff)
	}
	if diff := cmp.Diff(fields(httpapi.TransactionProduceRequest{}), httpapi.TransactionFieldNames()); diff != "" {
		t.Errorf("request in a transaction (-type +reader):\n%s", diff)
	}
	if diff := cmp.Diff(fields(httpapi.RecordRequest{}), request[:records]); diff != "" {
		t.Errorf("record (-type +reader):\n%s", diff)
	}
	if diff := cmp.Diff(fields(httpapi.HeaderRequest{}), header); diff != "" {
		t.Errorf("header (-type +reader):\n%s", diff)
	}
}

// Every code has a status that the document has, and one that may be tried again
// is never told that it may not.
func TestEveryCodeHasAStatus(t *testing.T) {
	d := readDocument(t)
	statuses := map[int]bool{}
	for code := kafka.Code(-1); code <= kafka.ErrRebootstrapRequired; code++ {
		status := httpapi.StatusOf(code)
		statuses[status] = true
		if code != kafka.ErrNone && d.Components.Responses[strconv.Itoa(status)].Description == "" {
			t.Errorf("%s comes with %d, which the document does not have", code, status)
		}
		if code.Retriable() && status != 503 && status != 429 && status != 404 {
			t.Errorf("%s may be tried again and comes with %d", code, status)
		}
	}
	if got := slices.Sorted(maps.Keys(statuses)); !slices.Equal(got, []int{200, 400, 404, 409, 413, 429, 500, 503}) {
		t.Errorf("statuses %v", got)
	}
}
