// How Go's net/http server reads a stream of bytes.
//
// Each line of stdin is a stream in base64; for each, one line of JSON: the requests that were
// read whole, and, where the server did not read to the end, with what it refused the rest.
package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

type request struct {
	Method string `json:"method"`
	Target string `json:"target"`
	Body   []byte `json:"body"`
	Closes bool   `json:"closes"`
}

type reading struct {
	Requests []request `json:"requests"`
	Status   string    `json:"status"`
	Why      string    `json:"why"`
}

// stream is a connection whose client has sent everything and closed its side.
type stream struct {
	*bytes.Reader
	written bytes.Buffer
	once    sync.Once
	ended   chan struct{}
}

type address struct{}

func (address) Network() string { return "stream" }
func (address) String() string  { return "stream" }

func (s *stream) Write(data []byte) (int, error)   { return s.written.Write(data) }
func (s *stream) Close() error                     { s.once.Do(func() { close(s.ended) }); return nil }
func (s *stream) LocalAddr() net.Addr              { return address{} }
func (s *stream) RemoteAddr() net.Addr             { return address{} }
func (s *stream) SetDeadline(time.Time) error      { return nil }
func (s *stream) SetReadDeadline(time.Time) error  { return nil }
func (s *stream) SetWriteDeadline(time.Time) error { return nil }

type listener chan net.Conn

func (l listener) Accept() (net.Conn, error) { return <-l, nil }
func (l listener) Close() error              { return nil }
func (l listener) Addr() net.Addr            { return address{} }

func main() {
	var read reading
	server := &http.Server{
		ErrorLog:                     log.New(io.Discard, "", 0),
		DisableGeneralOptionsHandler: true,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				read.Why = "body: " + err.Error()
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			read.Requests = append(read.Requests, request{r.Method, r.RequestURI, body, r.Close})
		}),
	}
	connections := make(listener)
	go func() { log.Fatal(server.Serve(connections)) }()
	input := bufio.NewReader(os.Stdin)
	output := bufio.NewWriter(os.Stdout)
	defer output.Flush()
	encoder := json.NewEncoder(output)
	for {
		line, err := input.ReadString('\n')
		if err != nil {
			return
		}
		sent, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
		if err != nil {
			log.Fatal(err)
		}
		read = reading{Requests: []request{}}
		one := &stream{Reader: bytes.NewReader(sent), ended: make(chan struct{})}
		connections <- one
		<-one.ended
		read.Status, read.Why = refusal(one.written.Bytes(), read, sent)
		if err := encoder.Encode(read); err != nil {
			log.Fatal(err)
		}
	}
}

// refusal returns the status line after those of the answered requests, and the reason: the
// text that came with it, else what the reader of requests says. It notes which answer closes.
func refusal(written []byte, read reading, sent []byte) (string, string) {
	responses := bufio.NewReader(bytes.NewReader(written))
	why := read.Why
	for answered := 0; ; {
		response, err := http.ReadResponse(responses, nil)
		if err != nil {
			return "", why
		}
		body, _ := io.ReadAll(response.Body)
		if response.StatusCode < 200 {
			continue
		}
		if answered < len(read.Requests) {
			read.Requests[answered].Closes = response.Close
			answered++
			continue
		}
		text := strings.TrimPrefix(string(body), response.Status)
		if why == "" {
			why = strings.TrimPrefix(text, ": ")
		}
		if why == "" {
			why = reason(sent)
		}
		return response.Status, why
	}
}

func reason(sent []byte) string {
	requests := bufio.NewReader(bytes.NewReader(sent))
	for {
		request, err := http.ReadRequest(requests)
		if err != nil {
			return err.Error()
		}
		if _, err := io.ReadAll(request.Body); err != nil {
			return err.Error()
		}
	}
}
