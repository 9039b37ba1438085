// Yardstick of tests/bench/bench_vpa_model.py: decaying exponential histograms, one object
// with one slice per histogram, as upstream's recommender holds them.
//
//	histograms FILE COUNT ROUNDS START STEP
//
// FILE (a pipe will do) holds ROUNDS+1 rows of COUNT little-endian float64 (cores). All rows but the last
// fill the histograms, START + round*STEP seconds; then the last row is added and three
// percentiles are read from every histogram, and only that is measured.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

const (
	first       = 0.01
	ratio       = 1.05
	maximum     = 1000.0
	epsilon     = 1e-4
	halfLife    = 24 * time.Hour
	maxExponent = 100
	weight      = 0.1
)

type layout struct {
	count  int
	starts []float64
}

func newLayout() *layout {
	count := int(math.Ceil(math.Log(maximum*(ratio-1)/first+1)/math.Log(ratio))) + 1
	l := &layout{count: count, starts: make([]float64, count)}
	for n := range l.starts {
		l.starts[n] = first * (math.Pow(ratio, float64(n)) - 1) / (ratio - 1)
	}
	return l
}

func (l *layout) find(value float64) int {
	if value < first {
		return 0
	}
	bucket := int(math.Log(value*(ratio-1)/first+1) / math.Log(ratio))
	if bucket >= l.count {
		return l.count - 1
	}
	return bucket
}

type histogram struct {
	layout    *layout
	weights   []float64
	total     float64
	low, high int
	halfLife  time.Duration
	reference time.Time
}

func newHistogram(l *layout) *histogram {
	return &histogram{layout: l, weights: make([]float64, l.count), low: l.count - 1, halfLife: halfLife}
}

func (h *histogram) factor(at time.Time) float64 {
	if at.After(h.reference.Add(h.halfLife * maxExponent)) {
		reference := at.Round(h.halfLife)
		steps := math.Floor(float64(h.reference.Sub(reference))/float64(h.halfLife) + 0.5)
		scale := math.Ldexp(1, int(steps))
		for i := h.low; i <= h.high; i++ {
			h.weights[i] *= scale
		}
		h.total *= scale
		h.tighten()
		h.reference = reference
	}
	return math.Exp2(float64(at.Sub(h.reference)) / float64(h.halfLife))
}

func (h *histogram) tighten() {
	for h.weights[h.low] < epsilon && h.low < h.layout.count-1 {
		h.low++
	}
	for h.weights[h.high] < epsilon && h.high > 0 {
		h.high--
	}
}

func (h *histogram) add(value, weight float64, at time.Time) {
	weight *= h.factor(at)
	bucket := h.layout.find(value)
	h.weights[bucket] += weight
	h.total += weight
	if h.weights[bucket] >= epsilon {
		h.low = min(h.low, bucket)
		h.high = max(h.high, bucket)
	}
}

func (h *histogram) percentile(fraction float64) float64 {
	if h.weights[h.low] < epsilon {
		return 0
	}
	partial, threshold, bucket := 0.0, fraction*h.total, h.low
	for ; bucket < h.high; bucket++ {
		partial += h.weights[bucket]
		if partial >= threshold {
			break
		}
	}
	if bucket < h.layout.count-1 {
		bucket++
	}
	return h.layout.starts[bucket]
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	defer file.Close()
	count, rounds := number(os.Args[2]), number(os.Args[3])
	start, step := number(os.Args[4]), number(os.Args[5])
	reader := bufio.NewReaderSize(file, 1<<20)
	values := make([]float64, count)
	raw := make([]byte, 8*count)
	read := func() {
		if _, err := io.ReadFull(reader, raw); err != nil {
			panic(err)
		}
		for i := range values {
			values[i] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))
		}
	}

	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	shared := newLayout()
	histograms := make([]*histogram, count)
	for i := range histograms {
		histograms[i] = newHistogram(shared)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)

	at := func(round int) time.Time { return time.Unix(int64(start+round*step), 0).UTC() }
	for round := range rounds {
		read()
		for i, h := range histograms {
			h.add(values[i], weight, at(round))
		}
	}
	read()
	began, sum := cpuSeconds(), 0.0
	for i, h := range histograms {
		h.add(values[i], weight, at(rounds))
	}
	added := cpuSeconds()
	for _, h := range histograms {
		sum += h.percentile(0.5) + h.percentile(0.9) + h.percentile(0.95)
	}
	ended := cpuSeconds()
	fmt.Printf("{\"add_s\": %g, \"read_s\": %g, \"bytes\": %g, \"sum\": %.17g}\n",
		added-began, ended-added, float64(after.HeapAlloc-before.HeapAlloc)/float64(count), sum)
}
