// The yardstick of the request path and the client that loads both.
//
//	httpyard serve -cert C -key K -port P -body FILE
//	httpyard load -url URL[,URL...] -clients N -rate R -seconds S [-ca FILE] [-token T]
//
// serve answers every request over TLS with the bytes of FILE, as a Go net/http server does it.
// load prints one line of JSON: requests, errors, and latencies in microseconds.
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

type outcome struct {
	micros int64
	failed bool
}

func load(args []string) {
	f := flag.NewFlagSet("load", flag.ExitOnError)
	urls, token := f.String("url", "", ""), f.String("token", "", "")
	clients, rate := f.Int("clients", 5, ""), f.Float64("rate", 0, "requests a second over all clients; 0: closed loop")
	seconds := f.Float64("seconds", 5, "")
	f.Parse(args)
	targets := strings.Split(*urls, ",")
	if rest := f.Args(); len(rest) == 1 { // a file with one URL a line
		text, err := os.ReadFile(rest[0])
		if err != nil {
			log.Fatal(err)
		}
		targets = strings.Fields(string(text))
	}
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		MaxIdleConnsPerHost: *clients,
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
		DisableCompression:  true,
	}
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	var wg sync.WaitGroup
	results := make([][]outcome, *clients)
	begin := time.Now()
	end := begin.Add(time.Duration(*seconds * float64(time.Second)))
	for i := 0; i < *clients; i++ {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			next := begin
			step := time.Duration(0)
			if *rate > 0 {
				step = time.Duration(float64(*clients) / *rate * float64(time.Second))
				next = begin.Add(step * time.Duration(i) / time.Duration(*clients))
			}
			for n := i; ; n += *clients {
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
				response, err := client.Do(request)
				failed := err != nil
				if err == nil {
					_, err = io.Copy(io.Discard, response.Body)
					response.Body.Close()
					failed = err != nil || response.StatusCode != 200
				}
				results[i] = append(results[i], outcome{time.Since(started).Microseconds(), failed})
			}
		}(i)
	}
	wg.Wait()
	var all []int64
	failed := 0
	for _, list := range results {
		for _, o := range list {
			all = append(all, o.micros)
			if o.failed {
				failed++
			}
		}
	}
	sort.Slice(all, func(a, b int) bool { return all[a] < all[b] })
	at := func(p float64) int64 {
		if len(all) == 0 {
			return 0
		}
		return all[int(p*float64(len(all)-1))]
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"requests": len(all), "failed": failed, "seconds": time.Since(begin).Seconds(),
		"p50_us": at(0.5), "p99_us": at(0.99), "max_us": at(1),
	})
}
