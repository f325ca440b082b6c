package strandline_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// openAPI is the OpenAPI document, which every answer of these tests is held
// against: a status that is not in it, or a field, fails the test.
type openAPI struct {
	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Schemas   map[string]jsonSchema
		Responses map[string]openAPIResponse
	}
}

type openAPIResponse struct {
	Ref     string `json:"$ref"`
	Content map[string]struct{ Schema jsonSchema }
}

// jsonSchema is as much of JSON Schema as the document uses.
type jsonSchema struct {
	Ref        string `json:"$ref"`
	Type       any
	Properties map[string]jsonSchema
	Required   []string
	Items      *jsonSchema
	AnyOf      []jsonSchema
	Enum       []any
	Additional json.RawMessage `json:"additionalProperties"`
}

func readOpenAPI(t testing.TB) *openAPI {
	t.Helper()
	text, err := os.ReadFile("internal/httpapi/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	d := &openAPI{}
	if err := json.Unmarshal(text, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// check says what an answer has that the document does not say.
func (d *openAPI) check(method, path string, status int, contentType, body string) error {
	path, _, _ = strings.Cut(path, "?")
	methods := d.match(path)
	raw, ok := methods[strings.ToLower(method)]
	if !ok {
		return nil // Nothing is served there.
	}
	var operation struct{ Responses map[string]openAPIResponse }
	if err := json.Unmarshal(raw, &operation); err != nil {
		return err
	}
	r, ok := operation.Responses[fmt.Sprint(status)]
	if !ok {
		return fmt.Errorf("status %d of %s %s is not in the document", status, method, path)
	}
	if r.Ref != "" {
		r = d.Components.Responses[r.Ref[strings.LastIndexByte(r.Ref, '/')+1:]]
	}
	if len(r.Content) == 0 {
		if body != "" {
			return fmt.Errorf("%s %s has a body with status %d, and the document has none", method, path, status)
		}
		return nil
	}
	content, ok := r.Content[contentType]
	if !ok {
		return fmt.Errorf("%s %s answers with %s, which is not in the document", method, path, contentType)
	}
	if contentType != "application/json" {
		return nil
	}
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return d.validate(content.Schema, v, "answer")
}

// match returns the methods of the path's template.
func (d *openAPI) match(path string) map[string]json.RawMessage {
	parts := strings.Split(path, "/")
	for template, methods := range d.Paths {
		want := strings.Split(template, "/")
		if slices.EqualFunc(want, parts, func(w, p string) bool { return w == p || strings.HasPrefix(w, "{") && p != "" }) {
			return methods
		}
	}
	return nil
}

func (d *openAPI) validate(s jsonSchema, v any, at string) error {
	if s.Ref != "" {
		name := s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
		of, ok := d.Components.Schemas[name]
		if !ok {
			return fmt.Errorf("%s: there is no schema %s", at, name)
		}
		return d.validate(of, v, at)
	}
	if len(s.AnyOf) > 0 {
		var last error
		for _, one := range s.AnyOf {
			if last = d.validate(one, v, at); last == nil {
				return nil
			}
		}
		return last
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
		return fmt.Errorf("%s: %v is none of %v", at, v, s.Enum)
	}
	types, ok := s.Type.([]any)
	if !ok {
		types = []any{s.Type}
	}
	if !slices.ContainsFunc(types, func(name any) bool { return hasType(v, name) }) {
		return fmt.Errorf("%s: %v is of none of the types %v", at, v, types)
	}
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			if err := d.validate(*s.Items, item, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case map[string]any:
		return d.validateObject(s, v, at)
	}
	return nil
}

func (d *openAPI) validateObject(s jsonSchema, v map[string]any, at string) error {
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return fmt.Errorf("%s: %s is missing", at, name)
		}
	}
	for name, field := range v {
		of, ok := s.Properties[name]
		if !ok {
			if string(s.Additional) == "false" {
				return fmt.Errorf("%s: %s is not in the document", at, name)
			}
			if len(s.Additional) == 0 {
				continue
			}
			if err := json.Unmarshal(s.Additional, &of); err != nil {
				return err
			}
		}
		if err := d.validate(of, field, at+"."+name); err != nil {
			return err
		}
	}
	return nil
}

func hasType(v, name any) bool {
	switch v := v.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case string:
		return name == "string"
	case float64:
		return name == "number" || name == "integer" && v == float64(int64(v))
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	}
	return false
}
