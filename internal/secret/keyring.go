// Package secret keeps the values that nobody may read back: organisation secrets for jobs, webhook secrets and clone
// credentials of sources. They lie in the store sealed with the master key, each bound to the row that it belongs to.
package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// KeyFile is the master key's file in the data directory, KeyVariable the environment variable that goes before it (D11).
const (
	KeyFile     = "master.key"
	KeyVariable = "KICI_SECRET_KEY"
)

// Errors of opening.
var (
	ErrOtherKey = errors.New("sealed with another master key; put that key back (" + KeyVariable + " or " + KeyFile + "), or set the secret again")
	ErrTampered = errors.New("sealed value is damaged or belongs to another row")
)

const (
	keySize   = 32
	version   = 1
	nonceSize = 12
	headSize  = 1 + 4 // version byte, key version
)

// Keyring seals and opens with the master key.
type Keyring struct {
	key  []byte
	id   uint32
	aead cipher.AEAD
}

// LoadKeyring takes the key from env (64 hex digits or base64 of 32 bytes), else from <dataDir>/master.key, which the
// first start makes. A key file that others can read is refused.
func LoadKeyring(dataDir, env string) (*Keyring, error) {
	if env != "" {
		key, err := parseKey(env)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", KeyVariable, err)
		}
		return NewKeyring(key)
	}
	path := filepath.Join(dataDir, KeyFile)
	key, err := readKeyFile(path)
	if errors.Is(err, os.ErrNotExist) {
		key, err = makeKeyFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("master key: %w", err)
	}
	return NewKeyring(key)
}

// NewKeyring returns a keyring of one 32 byte key.
func NewKeyring(key []byte) (*Keyring, error) {
	if len(key) != keySize {
		return nil, fmt.Errorf("the master key has %d bytes, it needs %d", len(key), keySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	// The version is derived from the key, so that a wrong key is told apart from a damaged value. It reveals 32 bits of
	// a hash of 256 random ones.
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("kici master key version"))
	return &Keyring{key: key, id: binary.BigEndian.Uint32(mac.Sum(nil)), aead: aead}, nil
}

func parseKey(text string) ([]byte, error) {
	text = strings.TrimSpace(text)
	if len(text) == hex.EncodedLen(keySize) {
		if key, err := hex.DecodeString(text); err == nil {
			return key, nil
		}
	}
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if key, err := enc.DecodeString(text); err == nil && len(key) == keySize {
			return key, nil
		}
	}
	return nil, fmt.Errorf("the key must be 64 hex digits or base64 of %d bytes", keySize)
}

func readKeyFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o077 != 0 {
		return nil, fmt.Errorf("%s can be read by others (mode %04o): chmod 600 it, and change the secrets if somebody may have read it", path, mode)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := parseKey(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// makeKeyFile writes a new key that is on disk, whole, before anything is sealed with it.
func makeKeyFile(path string) ([]byte, error) {
	key := make([]byte, keySize)
	_, _ = rand.Read(key)                                         // never fails
	f, err := os.CreateTemp(filepath.Dir(path), "."+KeyFile+"-*") // made 0600
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(f.Name()) }() // does nothing after the rename
	_, err = f.WriteString(hex.EncodeToString(key) + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return nil, err
	}
	if dir, err := os.Open(filepath.Dir(path)); err == nil {
		_ = dir.Sync() // not everywhere possible
		_ = dir.Close()
	}
	return key, nil
}

// Version identifies the key in sealed values and rows.
func (k *Keyring) Version() int64 { return int64(k.id) }

// Seal encrypts plain so that Open needs the same identity. The envelope is version(1) | key version(4) | nonce(12) |
// ciphertext and tag.
func (k *Keyring) Seal(identity string, plain []byte) ([]byte, error) {
	out := make([]byte, headSize+nonceSize, headSize+nonceSize+len(plain)+k.aead.Overhead())
	out[0] = version
	binary.BigEndian.PutUint32(out[1:headSize], k.id)
	if _, err := rand.Read(out[headSize:]); err != nil {
		return nil, err
	}
	return k.aead.Seal(out, out[headSize:], plain, associated(out[:headSize], identity)), nil
}

// Open decrypts what Seal made for this identity.
func (k *Keyring) Open(identity string, sealed []byte) ([]byte, error) {
	if len(sealed) < headSize+nonceSize+k.aead.Overhead() || sealed[0] != version {
		return nil, ErrTampered
	}
	if binary.BigEndian.Uint32(sealed[1:headSize]) != k.id {
		return nil, ErrOtherKey
	}
	nonce, text := sealed[headSize:headSize+nonceSize], sealed[headSize+nonceSize:]
	plain, err := k.aead.Open(nil, nonce, text, associated(sealed[:headSize], identity))
	if err != nil {
		return nil, ErrTampered
	}
	return plain, nil
}

func associated(head []byte, identity string) []byte {
	return append(append([]byte("kici secret "), head...), identity...)
}
