// Executes templates with Go's own text/template: one JSON request a line, one answer a line.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"text/template"
)

// fields has the shape and the types of the original's template arguments.
type fields struct {
	Series            string
	LabelMatchers     string
	LabelValuesByName map[string]string
	GroupBy           string
	GroupBySlice      []string
}

type request struct {
	Template string
	Fields   fields
}

type answer struct {
	Kind string `json:"kind"` // text, syntax or execution
	Text string `json:"text"` // the text, or the message
}

func execute(asked request) answer {
	parsed, err := template.New("metrics-query").Delims("<<", ">>").Parse(asked.Template)
	if err != nil {
		return answer{"syntax", err.Error()}
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, asked.Fields); err != nil {
		return answer{"execution", err.Error()}
	}
	return answer{"text", out.String()}
}

func main() {
	in := bufio.NewReader(os.Stdin)
	decoder := json.NewDecoder(in)
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	for {
		var asked request
		if err := decoder.Decode(&asked); err != nil {
			return
		}
		if err := encoder.Encode(execute(asked)); err != nil {
			panic(err)
		}
	}
}
