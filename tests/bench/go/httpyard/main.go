// The yardstick of the request path and the client that loads both.
//
//	httpyard serve -cert C -key K -port P -body FILE
//	httpyard load -clients N -rate R -seconds S [-requests N] [-token T] [-gzip] [-apart] FILE
//
// serve answers every request over TLS with the bytes of FILE, as a Go net/http server does it.
// load GETs the URLs of FILE, one a line, in turn; it prints one line of JSON: requests, latencies
// in microseconds, and the first 20,000 failures with the second in which they ended.
package main

import (
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sort"
	"strings"
	"sync"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("serve or load")
	}
	switch os.Args[1] {
	case "serve":
		serve(os.Args[2:])
	case "load":
		load(os.Args[2:])
	default:
		log.Fatalf("unknown command %q", os.Args[1])
	}
}

func serve(args []string) {
	f := flag.NewFlagSet("serve", flag.ExitOnError)
	cert, key := f.String("cert", "", ""), f.String("key", "", "")
	port, file := f.Int("port", 0, ""), f.String("body", "", "")
	f.Parse(args)
	body, err := os.ReadFile(*file)
	if err != nil {
		log.Fatal(err)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-cache, private")
		w.Write(body)
	})
	server := &http.Server{
		Addr:         fmt.Sprintf("127.0.0.1:%d", *port),
		Handler:      handler,
		TLSConfig:    &tls.Config{MinVersion: tls.VersionTLS12},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1, as ours
	}
	log.Fatal(server.ListenAndServeTLS(*cert, *key))
}

type failure struct {
	AtS    float64 `json:"at_s"`   // unix seconds
	Status int     `json:"status"` // 0: no answer
	Text   string  `json:"text"`
}

func load(args []string) {
	f := flag.NewFlagSet("load", flag.ExitOnError)
	token := f.String("token", "", "")
	clients, rate := f.Int("clients", 5, ""), f.Float64("rate", 0, "requests a second over all clients; 0: closed loop")
	seconds := f.Float64("seconds", 5, "")
	most := f.Int("requests", 0, "end after so many over all clients; 0: no end but the time's")
	gzipped := f.Bool("gzip", false, "ask for gzip, as kubectl does")
	apart := f.Bool("apart", false, "a connection for each client, which it keeps to itself")
	f.Parse(args)
	listed, err := os.ReadFile(f.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	targets := strings.Fields(string(listed))
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		MaxIdleConnsPerHost: *clients,
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
		DisableCompression:  true,
	}
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	var wg sync.WaitGroup
	results := make([][]int64, *clients)
	failures := make([][]failure, *clients)
	begin := time.Now()
	end := begin.Add(time.Duration(*seconds * float64(time.Second)))
	for i := 0; i < *clients; i++ {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			next := begin
			step := time.Duration(0)
			client := client
			if *apart {
				client = &http.Client{Transport: transport.Clone(), Timeout: client.Timeout}
			}
			if *rate > 0 {
				step = time.Duration(float64(*clients) / *rate * float64(time.Second))
				next = begin.Add(step * time.Duration(i) / time.Duration(*clients))
			}
			for n := i; *most == 0 || n < *most; n += *clients {
				if step > 0 {
					time.Sleep(time.Until(next))
				}
				started := time.Now()
				if started.After(end) {
					return
				}
				if step > 0 {
					started = next // a late start counts against the server, not for it
					next = next.Add(step)
				}
				request, err := http.NewRequest("GET", targets[n%len(targets)], nil)
				if err != nil {
					log.Fatal(err)
				}
				if *token != "" {
					request.Header.Set("Authorization", "Bearer "+*token)
				}
				request.Header.Set("Accept", "application/json")
				if *gzipped {
					request.Header.Set("Accept-Encoding", "gzip")
				}
				response, err := client.Do(request)
				status, text := 0, ""
				if err == nil {
					status = response.StatusCode
					if status == 200 {
						_, err = io.Copy(io.Discard, response.Body)
					} else {
						var body []byte
						body, err = io.ReadAll(io.LimitReader(response.Body, 400))
						text = string(body)
					}
					response.Body.Close()
				}
				if err != nil {
					status, text = 0, err.Error()
				}
				results[i] = append(results[i], time.Since(started).Microseconds())
				if status != 200 {
					at := float64(time.Now().UnixMicro()) / 1e6
					failures[i] = append(failures[i], failure{at, status, text})
				}
			}
		}(i)
	}
	wg.Wait()
	var all []int64
	failed := []failure{}
	for i := range results {
		all = append(all, results[i]...)
		failed = append(failed, failures[i]...)
	}
	shown := failed[:min(20000, len(failed))]
	sort.Slice(all, func(a, b int) bool { return all[a] < all[b] })
	at := func(p float64) int64 {
		if len(all) == 0 {
			return 0
		}
		return all[int(p*float64(len(all)-1))]
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"requests": len(all), "failed": len(failed), "failures": shown, "seconds": time.Since(begin).Seconds(),
		"p50_us": at(0.5), "p99_us": at(0.99), "max_us": at(1),
	})
}
