package plan

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func held(id string, limit int) Place    { return Place{ID: id, Max: limit, Active: true} }
func waits(id string, limit int) Place   { return Place{ID: id, Max: limit} }
func leaving(p Place) Place              { p.Leaving = true; return p }
func ask(limit int, cancel bool) Group   { return Group{Key: "g", Max: limit, Cancel: cancel} }
func places(list ...Place) (out []Place) { return list }

func TestJoin(t *testing.T) {
	for name, c := range map[string]struct {
		places     []Place
		ask        Group
		active     bool
		superseded []string
	}{
		"an empty group":                              {nil, ask(1, false), true, nil},
		"a full group":                                {places(held("a", 1)), ask(1, false), false, nil},
		"room for two":                                {places(held("a", 2)), ask(2, false), true, nil},
		"room, but somebody is before it":             {places(held("a", 2), waits("b", 2)), ask(2, false), false, nil},
		"room, and who waits is to be ended":          {places(leaving(waits("b", 1))), ask(1, false), true, nil},
		"the smaller maximum of a holder counts":      {places(held("a", 1)), ask(3, false), false, nil},
		"the smaller maximum of the newcomer counts":  {places(held("a", 3)), ask(1, false), false, nil},
		"cancel: nobody there":                        {nil, ask(1, true), true, nil},
		"cancel: the holder":                          {places(held("a", 1)), ask(1, true), false, []string{"a"}},
		"cancel: the holder is ending already":        {places(leaving(held("a", 1))), ask(1, true), false, nil},
		"cancel: who waits too":                       {places(held("a", 1), waits("b", 1)), ask(1, true), false, []string{"a", "b"}},
		"cancel: only the oldest of two makes room":   {places(held("a", 2), held("b", 2)), ask(2, true), false, []string{"a"}},
		"cancel: one leaves, so the other may stay":   {places(leaving(held("a", 2)), held("b", 2)), ask(2, true), false, nil},
		"cancel: there is room":                       {places(held("a", 2)), ask(2, true), true, nil},
		"cancel: a newcomer that wants to be alone":   {places(held("a", 3), held("b", 3)), ask(1, true), false, []string{"a", "b"}},
		"cancel: there is room, but somebody waits":   {places(held("a", 2), waits("b", 2)), ask(2, true), true, []string{"b"}},
		"cancel: a holder that wants to be alone":     {places(held("a", 1)), ask(5, true), false, []string{"a"}},
		"without cancel nobody is ended, however old": {places(held("a", 1), waits("b", 1)), ask(1, false), false, nil},
	} {
		active, superseded := Join(c.places, c.ask)
		if active != c.active || !slices.Equal(superseded, c.superseded) {
			t.Errorf("%s: active %v, superseded %v", name, active, superseded)
		}
	}
}

func TestPromote(t *testing.T) {
	for name, c := range map[string]struct {
		places []Place
		want   []string
	}{
		"nobody waits":                        {places(held("a", 1)), nil},
		"no room":                             {places(held("a", 1), waits("b", 1)), nil},
		"the oldest":                          {places(waits("a", 1), waits("b", 1)), []string{"a"}},
		"two of three":                        {places(waits("a", 2), waits("b", 2), waits("c", 2)), []string{"a", "b"}},
		"who is to be ended is passed over":   {places(leaving(waits("a", 1)), waits("b", 1)), []string{"b"}},
		"a holder that is ending still holds": {places(leaving(held("a", 1)), waits("b", 1)), nil},
		"nobody overtakes":                    {places(held("a", 2), waits("b", 1), waits("c", 2)), nil},
	} {
		if got := Promote(c.places); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestGroupModel lets owners with any wishes come and go in any order: no owner ever shares the group with more than it allows, places
// are given in the order of asking, with cancel-in-progress the newest is never ended for an older one, and nobody waits for
// nobody.
func TestGroupModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var group []Place
		came := 0
		cancel := rapid.SampledFrom([]string{"never", "always", "mixed"}).Draw(t, "cancel")
		find := func(id string) int { return slices.IndexFunc(group, func(p Place) bool { return p.ID == id }) }
		promote := func() {
			var before []string
			for _, p := range group {
				if !p.Active && !p.Leaving {
					before = append(before, p.ID)
				}
			}
			got := Promote(group)
			if !slices.Equal(got, before[:len(got)]) {
				t.Fatalf("promoted %v of %v", got, before)
			}
			for _, id := range got {
				group[find(id)].Active = true
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"come": func(t *rapid.T) {
				came++
				g := Group{Key: "g", Max: rapid.IntRange(1, 3).Draw(t, "max"), Cancel: cancel == "always" || cancel == "mixed" && rapid.Bool().Draw(t, "cancels")}
				active, superseded := Join(group, g)
				for _, id := range superseded {
					group[find(id)].Leaving = true
				}
				if active && slices.ContainsFunc(group, func(p Place) bool { return !p.Active && !p.Leaving }) {
					t.Fatal("it has overtaken somebody")
				}
				group = append(group, Place{ID: fmt.Sprint(came), Max: g.Max, Active: active})
				if more := Promote(group); len(more) > 0 { // or it would wait until somebody goes
					t.Fatalf("%v could have gone on at once", more)
				}
			},
			"go": func(t *rapid.T) {
				if len(group) == 0 {
					return
				}
				i := rapid.IntRange(0, len(group)-1).Draw(t, "who")
				group = slices.Delete(group, i, i+1)
				promote()
			},
			"": func(t *rapid.T) {
				active, waiting := 0, 0
				for _, p := range group {
					switch {
					case p.Active:
						active++
					case !p.Leaving:
						waiting++
					}
				}
				for _, p := range group {
					if p.Active && active > p.Max {
						t.Fatalf("%d hold a place and %s allows %d", active, p.ID, p.Max)
					}
				}
				if waiting > 0 && active == 0 {
					t.Fatal("somebody waits for nobody")
				}
				if n := len(group); n > 0 && cancel == "always" && group[n-1].ID == fmt.Sprint(came) && group[n-1].Leaving {
					t.Fatal("the newest is ended")
				}
			},
		})
	})
}

// TestXC92TenPushesInASecond: each ends those before it, whatever has become of them; the last one runs.
func TestXC92TenPushesInASecond(t *testing.T) {
	var group []Place
	for i := range 10 {
		active, superseded := Join(group, ask(1, true))
		for _, id := range superseded {
			k := slices.IndexFunc(group, func(p Place) bool { return p.ID == id })
			group[k].Leaving = true
		}
		group = append(group, Place{ID: fmt.Sprint(i), Max: 1, Active: active})
	}
	left := slices.DeleteFunc(slices.Clone(group), func(p Place) bool { return p.Leaving })
	if len(left) != 1 || left[0].ID != "9" {
		t.Fatalf("left %+v", left)
	}
	if got := Promote(left); !slices.Equal(got, []string{"9"}) {
		t.Fatalf("promoted %v", got)
	}
}
