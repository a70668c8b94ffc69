    push rbx
    mov rax,QWORD PTR [rdi+0x90]
    mov eax,DWORD PTR [rax]
    cmp eax,0x1
    jne 15
    mov rax,QWORD PTR [rdi+0x78]
    mov edx,DWORD PTR [rax+0x3c]
    bswap edx
    xor edx,DWORD PTR [rdi+0x158]
    test dl,0xfd
    je 1
    test dl,0x1
    jne 6
    test dl,0xc
    setne cl
    lea r8d,[rdx-0x10]
    cmp r8b,0x40
    setae r8b
    or r8b,cl
    jne 14
    mov ecx,DWORD PTR [rax+0x20]
    cmp QWORD PTR [rdi+0x40],rcx
    jne 8
    mov r8,QWORD PTR [rdi+0x48]
0:
    mov ecx,edx
    shr ecx,0x10
    mov r9,QWORD PTR [r8+0x190]
    test r9,r9
    je 12
    cmp r9d,0x1
    jne 14
    mov r9,QWORD PTR [r8+0x198]
    cmp QWORD PTR [r9+0x28],rcx
    jbe 14
    mov r8,QWORD PTR [r9+0x20]
    movzx r10d,BYTE PTR [r8+rcx*1]
    test r10b,r10b
    je 14
    xor r10d,r10d
    xchg BYTE PTR [r8+rcx*1],r10b
    test r10b,r10b
    je 14
    mov r8,QWORD PTR [r9+0x10]
    mov r8,QWORD PTR [r8+rcx*8]
    mov r10d,edx
    shr r10d,0x16
    mov r11d,0x1
    shl r11,cl
    mov rcx,QWORD PTR [r9+0x30]
    lock or QWORD PTR [rcx+r10*8],r11
    mov rcx,QWORD PTR [r9+0x40]
    mov BYTE PTR [rcx+r10*1],0x1
    mov rcx,QWORD PTR [r9+0x50]
    mov r9d,edx
    shr r9d,0x1c
    mov BYTE PTR [rcx+r9*1],0x1
    jmp 13
1:
    mov r8d,DWORD PTR [rax+0x20]
    cmp QWORD PTR [rdi+0x30],r8
    jne 7
    mov rcx,QWORD PTR [rdi+0x38]
    movzx r9d,WORD PTR [rcx+0x80]
    movzx r8d,WORD PTR [rcx]
    cmp r9w,r8w
    je 14
2:
    shr edx,0x10
    movzx r8d,r9w
    mov r11,QWORD PTR [rcx+0x100]
    and r8d,DWORD PTR [rcx+0x128]
    shl r8d,0x4
    mov r10,QWORD PTR [r11+r8*1+0x8]
    mov r8,QWORD PTR [r11+r8*1]
    mov rbx,r10
    shr rbx,0x28
    cmp dx,bx
    jne 9
3:
    inc r9d
    mov WORD PTR [rcx+0x80],r9w
    shr r10,0x20
    mov rcx,QWORD PTR [rdi+0x50]
    add rcx,rax
    cmp rcx,QWORD PTR [rdi+0x88]
    jne 5
4:
    xor BYTE PTR [rdi+0x158],0x1
    mov rcx,QWORD PTR [rdi+0x80]
5:
    movzx r9d,r10b
    mov r10,QWORD PTR [_ZN7mlx5_cq4kind5FACTS]
    movzx edx,BYTE PTR [r10+r9*4]
    cmp BYTE PTR [r10+r9*4+0x2],0x1
    jne 10
    mov eax,DWORD PTR [rax+0x2c]
    bswap eax
    jmp 11
6:
    dec DWORD PTR [rdi+0x168]
    mov eax,0x1
    je 16
    xor edx,edx
    pop rbx
    ret
7:
    mov rcx,QWORD PTR [rdi+0xa8]
    mov r9d,r8d
    bswap r9d
    mov rcx,QWORD PTR [rcx+0x10]
    mov r10d,r9d
    shr r10d,0x9
    and r10d,0x7ff8
    mov r10,QWORD PTR [rcx+r10*1]
    test r10,r10
    je 14
    and r9d,0xfff
    shl r9d,0x4
    mov rcx,QWORD PTR [r10+r9*1+0x8]
    cmp rcx,0x2
    jb 14
    add r10,r9
    mov r9,QWORD PTR [r10]
    cmp DWORD PTR [rdi+0x15c],r9d
    jne 14
    mov r9,QWORD PTR [r10+0x8]
    test rcx,rcx
    je 14
    cmp r9,rcx
    jne 14
    mov QWORD PTR [rdi+0x30],r8
    mov QWORD PTR [rdi+0x38],rcx
    movzx r9d,WORD PTR [rcx+0x80]
    movzx r8d,WORD PTR [rcx]
    cmp r9w,r8w
    jne 2
    jmp 14
8:
    mov r8,QWORD PTR [rdi+0xa8]
    mov r10d,ecx
    bswap r10d
    mov r8,QWORD PTR [r8+0x10]
    mov r9d,r10d
    shr r9d,0x9
    and r9d,0x7ff8
    mov r9,QWORD PTR [r8+r9*1]
    test r9,r9
    je 14
    and r10d,0xfff
    shl r10d,0x4
    mov r8,QWORD PTR [r9+r10*1+0x8]
    cmp r8,0x2
    jb 14
    add r9,r10
    mov r10,QWORD PTR [r9]
    shr r10,0x20
    cmp DWORD PTR [rdi+0x15c],r10d
    jne 14
    mov r9,QWORD PTR [r9+0x8]
    test r8,r8
    je 14
    cmp r9,r8
    jne 14
    mov QWORD PTR [rdi+0x40],rcx
    mov QWORD PTR [rdi+0x48],r8
    jmp 0
9:
    mov r11d,edx
    sub r11d,ebx
    movzx r8d,WORD PTR [rcx]
    sub r8d,r9d
    cmp r11w,r8w
    jae 14
    add r11d,r9d
    mov r8,QWORD PTR [rcx+0x100]
    mov r9d,r11d
    and r9d,DWORD PTR [rcx+0x128]
    movzx r9d,r9w
    shl r9d,0x4
    mov r10,QWORD PTR [r8+r9*1+0x8]
    mov r8,QWORD PTR [r8+r9*1]
    mov rbx,r10
    shr rbx,0x28
    mov r9d,r11d
    cmp dx,bx
    je 3
    jmp 14
10:
    xor eax,eax
11:
    xor r9d,r9d
    cmp dl,0x1
    sete r9b
    add r8,rax
    add r8,r9
    add QWORD PTR [rsi],r8
    mov QWORD PTR [rdi+0x78],rcx
    mov eax,DWORD PTR [rdi+0x150]
    add eax,DWORD PTR [rdi+0x154]
    mov DWORD PTR [rdi+0x154],eax
    mov rcx,QWORD PTR [rdi+0xa0]
    mov DWORD PTR [rcx+0x2c],eax
    mov rcx,QWORD PTR [rdi+0x98]
    and eax,0xffffff
    bswap eax
    mov DWORD PTR [rcx],eax
    mov eax,0x1
    mov edx,0x1
    pop rbx
    ret
12:
    mov r9,QWORD PTR [r8+0x198]
    mov r10d,DWORD PTR [r9+0x100]
    movzx r8d,WORD PTR [r9+0x80]
    cmp r10d,ecx
    jne 14
    cmp r8w,cx
    je 14
    mov r8,QWORD PTR [r9+0x180]
    mov r10d,DWORD PTR [r9+0x188]
    dec r10d
    and r10d,ecx
    mov r8,QWORD PTR [r8+r10*8]
    inc ecx
    mov DWORD PTR [r9+0x100],ecx
13:
    shr dl,0x4
    or dl,0x80
    mov r10d,edx
    mov rcx,QWORD PTR [rdi+0x50]
    add rcx,rax
    cmp rcx,QWORD PTR [rdi+0x88]
    jne 5
    jmp 4
14:
    mov QWORD PTR [rdi+0x78],rax
15:
    mov ecx,0x1
    xor edx,edx
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue9poll_rest]
    and eax,0x1
    pop rbx
    ret
16:
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue11check_alive]
    mov eax,0x1
    xor edx,edx
    pop rbx
    ret
