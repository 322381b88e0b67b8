package sim

import "time"

// seed is where all chance comes from.
type seed uint64

func mix(h uint64) uint64 {
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return h ^ h>>31
}

// at is the chance that belongs to the n-th time that label happens.
func (s seed) at(label string, n uint64) uint64 {
	h := mix(uint64(s) + 0x9e3779b97f4a7c15)
	for i := range len(label) {
		h = (h ^ uint64(label[i])) * 0x100000001b3
	}
	return mix(mix(h) + n)
}

// dice are the throws of one label, in order.
type dice struct {
	s     seed
	label string
	n     uint64
}

func (s seed) dice(label string) *dice { return &dice{s: s, label: label} }

func (d *dice) next() uint64 {
	d.n++
	return d.s.at(d.label, d.n)
}

// below is of [0, n).
func (d *dice) below(n int) int { return int(d.next() % uint64(n)) }

// chance is true in p of 100 throws.
func (d *dice) chance(p int) bool { return d.below(100) < p }

func (d *dice) between(from, to time.Duration) time.Duration {
	return quick(from + time.Duration(d.next()%uint64(to-from+1)))
}

// pace is how many times faster than planned everything happens: 1 in virtual time, which is free, more in real time (real.go).
var pace = time.Duration(1)

func quick(d time.Duration) time.Duration { return d / pace }

// upTo makes a time below d of a chance.
func upTo(h uint64, d time.Duration) time.Duration { return quick(time.Duration(h % uint64(d))) }

func pick[T any](d *dice, of ...T) T { return of[d.below(len(of))] }
