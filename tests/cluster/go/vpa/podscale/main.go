// Command podscale answers questions in the form of vpa.yaml's cases: one line of JSON with kind and
// inputs, one with what the original comes to, which is the case's expected.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"k8s.io/klog/v2"
)

type question struct {
	Kind   string          `json:"kind"`
	Inputs json.RawMessage `json:"inputs"`
}

type answers map[string]func(json.RawMessage) any

// kind has an answer take its inputs decoded.
func kind[I any](answer func(I) any) func(json.RawMessage) any {
	return func(raw json.RawMessage) any {
		var inputs I
		if err := json.Unmarshal(raw, &inputs); err != nil {
			panic(err)
		}
		return answer(inputs)
	}
}

func answered(asked question) (answer any) {
	defer func() {
		if cause := recover(); cause != nil {
			answer = map[string]any{"upstream_panics": fmt.Sprint(cause)}
		}
	}()
	for _, of := range []answers{admission, recommender, updater} {
		if answer, ok := of[asked.Kind]; ok {
			return answer(asked.Inputs)
		}
	}
	panic("no answer to kind " + asked.Kind)
}

func main() {
	flags := flag.NewFlagSet("klog", flag.ExitOnError)
	klog.InitFlags(flags)
	if err := flags.Parse([]string{"-logtostderr=false"}); err != nil {
		panic(err)
	}
	klog.SetOutput(io.Discard)
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF && len(bytes.TrimSpace(line)) == 0 {
			return
		}
		var asked question
		if err := json.Unmarshal(line, &asked); err != nil {
			panic(err)
		}
		written, err := json.Marshal(answered(asked))
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(out, "%s\n", written)
	}
}
