package kvtransfer_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
)

// object is one of JSON, its numbers as they were written.
type object = map[string]any

func TestMatchingOfVectors(t *testing.T) {
	for _, pair := range []struct{ expected, actual string }{
		{`{"a": 1}`, `{"a": 2}`}, {`{"a": 1}`, `{}`}, {`{"a": null}`, `{"a": {}}`}, {`{"a": [1]}`, `{"a": [1, 2]}`},
		{`{"a": [{"b": 1}, {}]}`, `{"a": [{}, {"b": 1}]}`}, {`{"a": 7}`, `{"a": "70"}`}, {`{"a": 0}`, `{"a": false}`},
		{`{"a": {"$above": "9"}}`, `{"a": "9"}`}, {`{"a": {"$contains": "x"}}`, `{"a": "y"}`},
	} {
		if problem := mismatch(fromJSON([]byte(pair.expected)), fromJSON([]byte(pair.actual)), ""); problem == "" {
			t.Errorf("%s matches %s", pair.actual, pair.expected)
		}
	}
	actual := fromJSON([]byte(`{"a": "10", "b": [{"c": 1, "d": 2}], "e": "an x"}`))
	expected := fromJSON([]byte(`{"a": 10, "b": [{"c": 1}], "e": {"$contains": "x"}, "f": null}`))
	if problem := mismatch(expected, actual, ""); problem != "" {
		t.Error(problem)
	}
}

func picked(value any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		if entries, ok := value.([]any); ok {
			at, err := strconv.Atoi(name)
			if err != nil || at >= len(entries) {
				return nil
			}
			value = entries[at]
		} else {
			value = value.(object)[name]
		}
	}
	return value
}

// mismatch tells where and how actual is not as expected; empty if it is.
func mismatch(expected, actual any, at string) string {
	wrong := fmt.Sprintf("%s: expected %v, got %v", at, expected, actual)
	switch expected := expected.(type) {
	case object:
		if least, ok := expected["$above"]; ok {
			number, err := strconv.ParseInt(fmt.Sprint(actual), 10, 64)
			bound, badBound := strconv.ParseInt(fmt.Sprint(least), 10, 64)
			if err != nil || badBound != nil || number <= bound {
				return wrong
			}
			return ""
		}
		if part, ok := expected["$contains"].(string); ok {
			if text, ok := actual.(string); !ok || !strings.Contains(text, part) {
				return wrong
			}
			return ""
		}
		fields, ok := actual.(object)
		if !ok {
			return wrong
		}
		for _, name := range slices.Sorted(maps.Keys(expected)) {
			if problem := mismatch(expected[name], fields[name], at+"."+name); problem != "" {
				return problem
			}
		}
		return ""
	case []any:
		entries, ok := actual.([]any)
		if !ok || len(entries) != len(expected) {
			return wrong
		}
		for i := range expected {
			if problem := mismatch(expected[i], entries[i], fmt.Sprintf("%s[%d]", at, i)); problem != "" {
				return problem
			}
		}
		return ""
	case json.Number:
		if text, ok := actual.(string); ok && text == expected.String() {
			return ""
		}
	}
	if expected != actual {
		return wrong
	}
	return ""
}

// unheard tells what of expected no message has said yet; empty if all was heard.
func unheard(expected object, messages []object) string {
	for _, name := range slices.Sorted(maps.Keys(expected)) {
		wanted, isList := expected[name].([]any)
		if !isList {
			wanted = []any{expected[name]}
		}
		var heard []any
		for _, message := range messages {
			if entries, ok := message[name].([]any); ok {
				heard = append(heard, entries...)
			} else {
				heard = append(heard, message[name])
			}
		}
		for _, one := range wanted {
			if !slices.ContainsFunc(heard, func(other any) bool { return mismatch(one, other, "") == "" }) {
				return fmt.Sprintf(".%s: %v is not among %v", name, one, heard)
			}
		}
	}
	return ""
}

func errorJSON(err error) object {
	failed, ok := errors.AsType[*kvtransfer.Error](err)
	if !ok {
		return object{"reason": "", "message": err.Error()}
	}
	metadata := object{}
	for name, value := range failed.Metadata {
		metadata[name] = value
	}
	found := object{
		"reason":  strings.TrimPrefix(failed.Reason.String(), "ERROR_REASON_"),
		"message": failed.Error(), "metadata": metadata,
	}
	if failed.Field != "" {
		found["field"] = failed.Field
	}
	return found
}

func parse[M proto.Message](t *testing.T, said any, into M) M {
	t.Helper()
	raw := must[[]byte](t)(json.Marshal(said))
	if err := protojson.Unmarshal(raw, into); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return into
}

func asJSON(message proto.Message) object {
	raw, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(message)
	if err != nil {
		panic(err) // messages that came over the wire can be told
	}
	return fromJSON(raw)
}

// fromJSON reads what this package wrote, or a test.
func fromJSON(raw []byte) object {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var found object
	if err := decoder.Decode(&found); err != nil {
		panic(err)
	}
	return found
}
