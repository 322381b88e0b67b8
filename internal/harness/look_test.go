package harness

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// shots are the pictures of the documentation: every page, wide and narrow, light and dark.
var shots = []string{"runs", "run", "job", "queue", "agents", "scalers", "sources", "delivery", "start"}

// moreShots are taken twice only: wide and light, narrow and dark.
var moreShots = []string{"timeline", "events", "event", "workflows", "schedules", "instances", "cluster settings", "access log"}

const (
	maxPicture  = 120 << 10 // bytes of one
	maxPictures = 2300 << 10
	pictures    = "../../docs/pictures"
)

// TestBrowserPictures compares every page with its picture in the documentation; with KICI_TEST_UPDATE_PICTURES it takes them
// again. Fonts differ between machines, so what is compared is the layout: where on the page there is how much, in a coarse
// grid.
func TestBrowserPictures(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes its time")
	}
	chromium(t)
	g := openGallery(t)
	b := newBrowserAt(t, "http://"+g.addr)
	b.freeze(g.now)
	b.open("/login/link/x")
	b.see("the first page", "location.pathname === '/runs'")
	total := 0
	for _, name := range slices.Concat(shots, moreShots) {
		for _, width := range []int64{1280, 400} {
			for _, scheme := range []string{"light", "dark"} {
				if slices.Contains(moreShots, name) && (width == 1280) != (scheme == "light") {
					continue
				}
				b.screenOf(width, 720, scheme)
				b.open(g.pages[name])
				b.see("the page "+name, "document.readyState === 'complete' && !!document.querySelector('main h1') && document.fonts.status === 'loaded'")
				if over := eval[float64](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
					t.Errorf("%s is %v px too wide for %d px", name, over, width)
				}
				total += b.compare(fmt.Sprintf("%s-%d-%s", strings.ReplaceAll(name, " ", "-"), width, scheme))
			}
		}
	}
	b.quiet()
	if total > maxPictures {
		t.Errorf("the pictures have %d bytes together, at most %d are wanted", total, maxPictures)
	}
}

// compare holds the page against its picture, or takes that again, and returns the picture's size in bytes.
func (b *browser) compare(name string) int {
	b.t.Helper()
	got := b.shoot()
	file := filepath.Join(pictures, name+".png")
	if os.Getenv("KICI_TEST_UPDATE_PICTURES") != "" {
		small, err := shrink(got)
		if err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(file, small, 0o644); err != nil { //nolint:gosec // a picture for everybody
			b.t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(file)
	if err != nil {
		b.t.Errorf("%v: make screenshots", err)
		return 0
	}
	if len(kept) > maxPicture {
		b.t.Errorf("%s has %d bytes, at most %d are wanted", file, len(kept), maxPicture)
	}
	if why := differ(b.t, kept, got); why != "" {
		b.t.Errorf("%s does not look like its picture: %s; if it should, make screenshots", name, why)
		if dir := os.Getenv("KICI_TEST_KEEP_PICTURES"); dir != "" {
			_ = os.WriteFile(filepath.Join(dir, name+".png"), got, 0o600)
		}
	}
	return len(kept)
}

// shoot is the whole page as PNG.
func (b *browser) shoot() []byte {
	b.t.Helper()
	all := true
	width, height := eval[float64](b, "innerWidth"), eval[float64](b, "document.documentElement.scrollHeight")
	res, err := chromedp.Call(b.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{
		CaptureBeyondViewport: &all, Clip: &page.Viewport{Width: width, Height: height, Scale: 1},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return res.Data
}

// How unlike two pictures may be before a test fails: other fonts move a line break here and there, a broken style sheet or a
// missing table moves everything.
const (
	grid         = 12   // cells across
	heightOff    = 0.25 // of the height
	darkness     = 10.0 // mean difference of the cells, of 255
	darknessCell = 110.0
)

// differ says how two pictures differ in layout, "" when they do not.
func differ(t *testing.T, kept, got []byte) string {
	t.Helper()
	a, errA := png.Decode(bytes.NewReader(kept))
	b, errB := png.Decode(bytes.NewReader(got))
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	sa, sb := a.Bounds().Size(), b.Bounds().Size()
	if sa.X != sb.X {
		return fmt.Sprintf("it is %d px wide, not %d", sb.X, sa.X)
	}
	if off := math.Abs(float64(sa.Y-sb.Y)) / float64(sa.Y); off > heightOff {
		return fmt.Sprintf("it is %d px high, not %d", sb.Y, sa.Y)
	}
	rows := max(1, grid*min(sa.Y, sb.Y)/sa.X)
	sum, worst := 0.0, 0.0
	ca, cb := cells(a, rows), cells(b, rows)
	for i := range ca {
		d := math.Abs(ca[i] - cb[i])
		sum, worst = sum+d, max(worst, d)
	}
	if mean := sum / float64(len(ca)); mean > darkness || worst > darknessCell {
		return fmt.Sprintf("its cells differ by %.1f on average and %.1f at most, of 255", mean, worst)
	}
	return ""
}

// cells is the mean brightness of each cell of a picture's grid, 0 to 255. Cells are of the same share of each picture, so
// that a page that has grown by a line is compared with itself.
func cells(img image.Image, rows int) []float64 {
	size := img.Bounds()
	out, n := make([]float64, grid*rows), make([]float64, grid*rows)
	for y := size.Min.Y; y < size.Max.Y; y++ {
		row := (y - size.Min.Y) * rows / size.Dy()
		for x := size.Min.X; x < size.Max.X; x++ {
			r, g, b, _ := img.At(x, y).RGBA()
			i := row*grid + (x-size.Min.X)*grid/size.Dx()
			out[i] += float64(r+g+b) / 3 / 257
			n[i]++
		}
	}
	for i := range out {
		out[i] /= n[i]
	}
	return out
}

// The comparison forgives another font and sees another page.
func TestPicturesDifferWhenPagesDo(t *testing.T) {
	draw := func(height, panels int, paper uint8) []byte {
		img := image.NewGray(image.Rect(0, 0, 400, height))
		for i := range img.Pix {
			img.Pix[i] = paper
		}
		for p := range panels {
			for y := 20 + p*60; y < 60+p*60 && y < height; y++ {
				for x := 20; x < 380; x++ {
					if (x+y)%3 == 0 {
						img.Pix[y*img.Stride+x] = 255 - paper
					}
				}
			}
		}
		var b bytes.Buffer
		if err := png.Encode(&b, img); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	kept := draw(600, 8, 250)
	for name, c := range map[string]struct {
		got  []byte
		like bool
	}{
		"the same": {kept, true}, "a line longer": {draw(612, 8, 250), true}, "twice as high": {draw(1200, 8, 250), false},
		"empty": {draw(600, 0, 250), false}, "dark": {draw(600, 8, 10), false}, "half of it": {draw(600, 3, 250), false},
	} {
		if why := differ(t, kept, c.got); (why == "") != c.like {
			t.Errorf("%s: %q", name, why)
		}
	}
}
