package container

import (
	"testing"

	"github.com/moby/moby/api/types/jsonstream"
)

func TestPullProgress(t *testing.T) {
	at := func(id, status string, current, total int64) jsonstream.Message {
		return jsonstream.Message{ID: id, Status: status, Progress: &jsonstream.Progress{Current: current, Total: total}}
	}
	p := pullProgress{}
	for i, c := range []struct {
		m    jsonstream.Message
		want string
	}{
		{jsonstream.Message{Status: "Pulling from library/golang", ID: "1.26"}, ""},
		{jsonstream.Message{Status: "Pulling fs layer", ID: "a"}, ""},
		{jsonstream.Message{Status: "Pulling fs layer", ID: "b"}, ""},
		{jsonstream.Message{Status: "Already exists", ID: "c"}, ""},
		{at("a", "Downloading", 20_000_000, 100_000_000), "20 MB of at least 100 MB"},
		{at("b", "Downloading", 100_000_000, 200_000_000), "120 MB of 300 MB"},
		{at("b", "Downloading", 90_000_000, 200_000_000), "120 MB of 300 MB"},
		{at("a", "Extracting", 5, 100_000_000), "120 MB of 300 MB"},
		{jsonstream.Message{Status: "Download complete", ID: "a"}, "200 MB of 300 MB"},
		{jsonstream.Message{Status: "Download complete", ID: "b"}, "unpacking 300 MB"},
		{at("b", "Extracting", 7, 200_000_000), "unpacking 300 MB"},
		{at("", "Downloading", 7, 9), "unpacking 300 MB"},
	} {
		p.note(c.m)
		if got := p.String(); got != c.want {
			t.Errorf("message %d: %q, want %q", i, got, c.want)
		}
	}
	var hostile pullProgress
	for i := range 2 * maxLayers {
		hostile.note(at(string(rune(i+'a')), "Downloading", -5, 0))
	}
	if len(hostile.layers) != maxLayers || hostile.String() != "" {
		t.Errorf("%d layers, %q", len(hostile.layers), hostile.String())
	}
}
