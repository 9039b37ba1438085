// Command requestinfo answers how k8s.io/apiserver reads requests: one line of JSON with a method and
// a target as sent, one with what RBAC would be asked. Texts are base64, since they may be any bytes.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

type question struct {
	Method string `json:"method"`
	Target []byte `json:"target"`
}

type answer struct {
	Refused     bool     `json:"refused"` // by the parser of targets: net/http answers 400
	Failed      bool     `json:"failed"`  // by the resolver: 500
	IsResource  bool     `json:"is_resource"`
	Path        []byte   `json:"path"`
	Verb        string   `json:"verb"`
	Group       []byte   `json:"group"`
	Version     []byte   `json:"version"`
	Namespace   []byte   `json:"namespace"`
	Resource    []byte   `json:"resource"`
	Subresource []byte   `json:"subresource"`
	Name        []byte   `json:"name"`
	Parts       [][]byte `json:"parts"`
}

// As genericapiserver.NewRequestInfoResolver makes it for a server without prefixes of its own.
var resolver = request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

func answered(in question) answer {
	target, err := url.ParseRequestURI(string(in.Target))
	if err != nil {
		return answer{Refused: true}
	}
	info, err := resolver.NewRequestInfo(&http.Request{Method: in.Method, URL: target})
	out := answer{
		Failed:      err != nil,
		IsResource:  info.IsResourceRequest,
		Path:        []byte(info.Path),
		Verb:        info.Verb,
		Group:       []byte(info.APIGroup),
		Version:     []byte(info.APIVersion),
		Namespace:   []byte(info.Namespace),
		Resource:    []byte(info.Resource),
		Subresource: []byte(info.Subresource),
		Name:        []byte(info.Name),
	}
	for _, each := range info.Parts {
		out.Parts = append(out.Parts, []byte(each))
	}
	return out
}

func main() {
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	told := json.NewEncoder(out)
	for {
		var each question
		if err := in.Decode(&each); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			panic(err)
		}
		if err := told.Encode(answered(each)); err != nil {
			panic(err)
		}
	}
}
